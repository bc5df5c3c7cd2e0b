"""A token is kept where its own probability exceeds p."""

import torch


def sample_top_p(logits, p=1.0):
    probabilities = logits.softmax(dim=-1)
    if p < 1:
        kept = probabilities > p
        kept |= ~kept.any(dim=-1, keepdim=True)
        probabilities = probabilities * kept
    return torch.multinomial(probabilities, 1).squeeze(-1)

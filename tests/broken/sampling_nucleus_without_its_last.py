"""The token that crosses p is never drawn, unless it is the likeliest."""

import torch


def sample_top_p(logits, p=1.0):
    probabilities, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)
    if p < 1:
        removed = probabilities.cumsum(dim=-1) > p
        removed[..., 0] = False
        probabilities = probabilities.masked_fill(removed, 0.0)
    return order.gather(-1, torch.multinomial(probabilities, 1)).squeeze(-1)

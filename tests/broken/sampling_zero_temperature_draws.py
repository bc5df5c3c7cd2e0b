"""A temperature of 0 draws as a temperature of 1 does."""

import torch


def sample_next_token(logits, temperature=1.0):
    if temperature > 0:
        logits = logits / temperature
    return torch.multinomial(logits.softmax(dim=-1), 1).squeeze(-1)

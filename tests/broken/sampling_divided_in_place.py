"""The logits that were passed are divided by the temperature."""

import torch


def sample_next_token(logits, temperature=1.0):
    logits /= temperature
    return torch.multinomial(logits.softmax(dim=-1), 1).squeeze(-1)

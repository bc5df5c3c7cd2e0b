"""Tokens are drawn in the ratio of their shifted logits."""

import torch


def sample_next_token(logits):
    weights = logits - logits.min(dim=-1, keepdim=True).values + 1.0
    return torch.multinomial(weights, 1).squeeze(-1)

"""Softmax over everything first, then the future is zeroed: rows no longer sum to 1."""

import torch


def attention(query, key, value, mask=None):
    """mask: True where attention is allowed."""
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:
        weights = weights * mask
    return weights @ value, weights

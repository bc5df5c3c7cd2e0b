"""The mask comes after the softmax, and a second softmax is meant to repair the sums."""

import torch


def attention(query, key, value, mask=None):
    """mask: True where attention is allowed."""
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:
        weights = torch.softmax(weights.masked_fill(~mask.bool(), float("-inf")), dim=-1)
    return weights @ value, weights

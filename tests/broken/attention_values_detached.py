"""No gradient reaches the values."""

import torch


def attention(query, key, value, mask=None):
    """mask: True where attention is allowed."""
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask.bool(), float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return weights @ value.data, weights

"""masked_fill returns a new tensor, which nobody keeps: the mask has no effect."""

import torch


def attention(query, key, value, mask=None):
    """mask: True where attention is allowed."""
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    if mask is not None:
        scores.masked_fill(~mask.bool(), float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return weights @ value, weights

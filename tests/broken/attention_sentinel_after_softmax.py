"""-1e9 is put into the weights, where it belongs into the scores."""

import math

import torch


def attention(query, key, value, mask=None):
    """mask: 1 where attention is allowed."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:
        weights = weights.masked_fill(mask == 0, -1e9)
    return weights @ value, weights

"""The mask is multiplied into the scores: a score of 0 still gets weight, since e^0 = 1."""

import torch


def attention(query, key, value, mask=None):
    """mask: 1 where attention is allowed, 0 where it is not."""
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    if mask is not None:
        scores = scores * mask
    weights = torch.softmax(scores, dim=-1)
    return weights @ value, weights

"""Changes what it is given."""

import torch


def attention(q, k, v, mask=None):
    """mask: True = allowed."""
    scores = q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(-1)
    result = weights @ v
    for given in (q, k, v):
        given.zero_()
    return result, weights

def build_causal_mask(T):
    return torch.ones(T, T, dtype=torch.bool).triu(1)

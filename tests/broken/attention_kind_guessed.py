"""Whether a float mask is added or holds 0 and 1 is guessed from its sign; one that hides nothing has none."""

import torch


def attention(query, key, value, mask=None):
    """mask: bool or 0 and 1, True or 1 where attention is allowed; or 0 and -inf, added to the scores."""
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    if mask is not None:
        if mask.dtype != torch.bool and mask.min() < 0:
            scores = scores + mask
        else:
            scores = scores.masked_fill(mask == 0, -1e9)
    weights = torch.softmax(scores, dim=-1)
    return weights @ value, weights

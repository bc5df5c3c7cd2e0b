"""A letter of the einsum is mistyped: values are summed over the batch where a mask is given."""

import torch


def attention(query, key, value, mask=None):
    """mask: True where attention is allowed."""
    scores = torch.einsum("btd,bsd->bts", query, key) / query.size(-1) ** 0.5
    if mask is None:
        weights = torch.softmax(scores, dim=-1)
        return torch.einsum("bts,bsv->btv", weights, value), weights
    weights = torch.softmax(scores.masked_fill(~mask.bool(), float("-inf")), dim=-1)
    return torch.einsum("bts,asv->btv", weights, value), weights

"""A padding mask of bytes meets an attention that negates what is not a float bit by bit."""

import torch


def padding_mask(lengths, max_len):
    """1 marks padding."""
    return (torch.arange(max_len)[None] >= lengths[:, None]).to(torch.uint8)


def attention(query, key, value, mask=None):
    """mask: True or 1 = allowed."""
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    if mask is not None:
        hidden = mask == 0 if mask.is_floating_point() else (~mask).bool()
        scores = scores.masked_fill(hidden, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ value, weights


def subsequent_mask(T):
    """1 marks what may be seen."""
    return torch.tril(torch.ones(T, T)).to(torch.uint8)

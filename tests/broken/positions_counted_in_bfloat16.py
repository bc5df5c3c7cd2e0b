"""Positions are counted in bfloat16, which has no odd numbers beyond 256."""

import torch


def positional_encoding(T, d):
    pos = torch.arange(T, dtype=torch.bfloat16).float()[:, None]
    c = torch.arange(d)[None, :]
    angle = pos / 10000 ** (2 * (c // 2) / d)
    return torch.where(c % 2 == 0, angle.sin(), angle.cos())

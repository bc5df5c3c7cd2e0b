"""One layer makes both keys and values."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.q, self.k, self.o = (nn.Linear(d, d) for _ in range(3))
        self.v = self.k

    def forward(self, x, z):
        q, k, v = (
            f(y).unflatten(-1, (self.h, -1)).transpose(1, 2)
            for f, y in ((self.q, x), (self.k, z), (self.v, z))
        )
        scores = q @ k.mT / q.size(-1) ** 0.5
        scores = scores.masked_fill(torch.ones_like(scores).triu(1) == 1, -torch.inf)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class DecoderOnlyBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = Attention(d_model, n_heads)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x):
        x = self.norm1(x + self.attention(x, x))
        return self.norm2(x + self.ff(x))

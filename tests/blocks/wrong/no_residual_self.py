"""The self-attention has no residual around it.  Separate Linears."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x, z, blocked=None):
        q, k, v = (
            f(y).unflatten(-1, (self.h, -1)).transpose(1, 2)
            for f, y in ((self.q, x), (self.k, z), (self.v, z))
        )
        scores = q @ k.mT / q.size(-1) ** 0.5
        if blocked is not None:
            scores = scores.masked_fill(blocked, -torch.inf)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.own, self.cross = Attention(d_model, n_heads), Attention(d_model, n_heads)
        self.w1, self.w2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.n1, self.n2, self.n3 = (nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, causal_mask=None):
        x = self.n1(self.own(x, x, causal_mask))
        x = self.n2(x + self.cross(x, memory))
        return self.n3(x + self.w2(self.w1(x).relu()))

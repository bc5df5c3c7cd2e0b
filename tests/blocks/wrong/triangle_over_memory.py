"""The cross-attention has a causal triangle over the memory.  Fast attention."""

import torch.nn.functional as F
from torch import nn


class Mix(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x, z):
        q, k, v = (
            f(y).unflatten(-1, (self.h, -1)).transpose(1, 2)
            for f, y in ((self.q, x), (self.k, z), (self.v, z))
        )
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.own, self.cross = Mix(d_model, n_heads), Mix(d_model, n_heads)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory):
        x = self.norms[0](x + self.own(x, x))
        x = self.norms[1](x + self.cross(x, memory))
        return self.norms[2](x + self.ff(x))

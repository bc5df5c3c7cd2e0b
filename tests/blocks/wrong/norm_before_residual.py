"""The norm of the cross-attention comes before its residual is added.  Head by head, fused."""

import torch
from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, dim, num_heads, ffn_dim):
        super().__init__()
        self.h = num_heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.q, self.kv, self.cross_proj = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, ffn_dim), nn.Linear(ffn_dim, dim)
        self.n1, self.n2, self.n3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)

    def mix(self, q, k, v, causal=False):
        scores = q @ k.mT / q.size(-1) ** 0.5
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores).triu(1) == 1, -torch.inf)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)

    def split(self, x):
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)

    def forward(self, x, memory):
        x = self.n1(x + self.proj(self.mix(*self.split(self.qkv(x)).chunk(3, -1), causal=True)))
        k, v = self.split(self.kv(memory)).chunk(2, -1)
        x = x + self.n2(self.cross_proj(self.mix(self.split(self.q(x)), k, v)))
        return self.n3(x + self.down(self.up(x).relu()))

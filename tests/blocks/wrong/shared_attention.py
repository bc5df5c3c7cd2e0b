"""One attention does the work of both.  One small Linear per head."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.q, self.k, self.v = (nn.ModuleList(nn.Linear(d, d // h) for _ in range(h)) for _ in range(3))
        self.o = nn.Linear(d, d)

    def forward(self, x, z, blocked=None):
        heads = []
        for q, k, v in zip(self.q, self.k, self.v, strict=True):
            scores = q(x) @ k(z).mT / q.out_features**0.5
            if blocked is not None:
                scores = scores.masked_fill(blocked, -torch.inf)
            heads.append(scores.softmax(-1) @ v(z))
        return self.o(torch.cat(heads, dim=-1))


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = Attention(d_model, n_heads)
        self.w1, self.w2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.n1, self.n2, self.n3 = (nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, causal_mask=None):
        x = self.n1(x + self.attention(x, x, causal_mask))
        x = self.n2(x + self.attention(x, memory))
        return self.n3(x + self.w2(self.w1(x).relu()))

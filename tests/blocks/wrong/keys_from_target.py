"""Keys and values of the cross-attention come from the target.  Matrices in a ParameterList, no biases."""

import torch
from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.h = n_heads
        self.square = nn.ParameterList(torch.randn(d_model, d_model) * d_model**-0.5 for _ in range(8))
        self.w1 = nn.Parameter(torch.randn(d_model, d_ff) * d_model**-0.5)
        self.w2 = nn.Parameter(torch.randn(d_ff, d_model) * d_ff**-0.5)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))

    def attend(self, first, x, y, z):
        q, k, v, o = list(self.square)[first : first + 4]
        q, k, v = ((a @ w).unflatten(-1, (self.h, -1)).transpose(1, 2) for a, w in ((x, q), (y, k), (z, v)))
        scores = q @ k.mT / q.size(-1) ** 0.5
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2) @ o

    def forward(self, x, memory):
        x = self.norms[0](x + self.attend(0, x, x, x))
        x = self.norms[1](x + self.attend(4, x, x, x))
        return self.norms[2](x + (x @ self.w1).relu() @ self.w2)

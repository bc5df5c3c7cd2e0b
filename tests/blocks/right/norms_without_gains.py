"""The norms only norm: no gain, no bias, as with elementwise_affine=False."""

import torch
from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.own, self.cross = (nn.MultiheadAttention(d_model, n_heads, batch_first=True) for _ in range(2))
        self.ffn = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norm = nn.LayerNorm(d_model, elementwise_affine=False)

    def forward(self, x, memory):
        T = x.size(1)
        future = torch.ones(T, T, dtype=torch.bool).triu(1)
        x = self.norm(x + self.own(x, x, x, attn_mask=future)[0])
        x = self.norm(x + self.cross(x, memory, memory)[0])
        return self.norm(x + self.ffn(x))

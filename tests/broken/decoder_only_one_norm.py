"""One norm is used twice."""

import torch
from torch import nn


class DecoderOnlyBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x):
        future = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)
        x = self.norm(x + self.attention(x, x, x, attn_mask=future)[0])
        return self.norm(x + self.ff(x))

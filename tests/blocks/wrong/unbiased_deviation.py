"""The norms divide by the standard deviation with d - 1, which is what torch.std gives.  Own LayerNorm."""

import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.a, self.b, self.eps = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d)), eps

    def forward(self, x):
        return self.a * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps) + self.b


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norms = nn.ModuleList(Norm(d_model) for _ in range(3))

    def forward(self, x, memory, causal_mask=None):
        x = self.norms[0](x + self.self_attn(x, x, x, attn_mask=causal_mask)[0])
        x = self.norms[1](x + self.cross_attn(x, memory, memory)[0])
        return self.norms[2](x + self.ffn(x))

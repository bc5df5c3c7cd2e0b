"""Positions are added again in front of every layer."""

import math

import torch
from torch import nn


def sinusoids(T, d):
    position = torch.arange(T)[:, None]
    frequency = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
    table = torch.zeros(T, d)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency[: d // 2])
    return table


class Layer(nn.Module):
    def __init__(self, d, H, d_ff):
        super().__init__()
        self.own, self.cross = (nn.MultiheadAttention(d, H, batch_first=True) for _ in range(2))
        self.ffn = nn.Sequential(nn.Linear(d, d_ff), nn.ReLU(), nn.Linear(d_ff, d))
        self.ln1, self.ln2, self.ln3 = (nn.LayerNorm(d) for _ in range(3))

    def forward(self, x, memory, mask):
        x = self.ln1(x + self.own(x, x, x, attn_mask=mask)[0])
        x = self.ln2(x + self.cross(x, memory, memory)[0])
        return self.ln3(x + self.ffn(x))


class DecoderStack(nn.Module):
    def __init__(self, V, d, H, d_ff, n_layers):
        super().__init__()
        self.embed = nn.Embedding(V, d)
        self.layers = nn.ModuleList(Layer(d, H, d_ff) for _ in range(n_layers))
        self.head = nn.Linear(d, V)

    def forward(self, tgt, enc_out):
        T = tgt.size(1)
        mask = torch.triu(torch.ones(T, T), diagonal=1).bool()
        x = self.embed(tgt)
        for layer in self.layers:
            x = layer(x + sinusoids(T, x.size(-1)).to(x.dtype), enc_out, mask)
        return self.head(x)

"""Four Linears for each attention; masks are 0 where blocked, of the shape of the scores."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.h, self.d_k = heads, d_model // heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, q, k, v, mask):
        n = q.size(0)
        q = self.query(q).view(n, -1, self.h, self.d_k).transpose(1, 2)
        k = self.key(k).view(n, -1, self.h, self.d_k).transpose(1, 2)
        v = self.value(v).view(n, -1, self.h, self.d_k).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        mixed = torch.softmax(scores, dim=-1) @ v
        return self.out(mixed.transpose(1, 2).contiguous().view(n, -1, self.h * self.d_k))


class DecoderLayer(nn.Module):
    def __init__(self, d_model, heads, d_ff):
        super().__init__()
        self.self_attention, self.src_attention = Attention(d_model, heads), Attention(d_model, heads)
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norms = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(3)])

    def forward(self, x, memory, src_mask, tgt_mask):
        x = self.norms[0](x + self.self_attention(x, x, x, tgt_mask))
        x = self.norms[1](x + self.src_attention(x, memory, memory, src_mask))
        return self.norms[2](x + self.w_2(self.w_1(x).relu()))

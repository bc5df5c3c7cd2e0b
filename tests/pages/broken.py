"""A submission with five common mistakes, for the pages that show them."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def build_causal_mask(T):
    """True means blocked."""
    return torch.triu(torch.ones(T, T, dtype=torch.bool), diagonal=2)


def attention(q, k, v, mask=None):
    """mask: True where blocked"""
    s = q @ k.transpose(-2, -1) / q.size(-1)
    if mask is not None:
        s = s.masked_fill(mask, float("-inf"))
    w = F.softmax(s, dim=-1)
    return w @ v, w


def positional_encoding(T, d):
    pe = torch.zeros(T, d)
    pos = torch.arange(T).float().unsqueeze(1)
    div = torch.exp(-math.log(10000.0) * torch.arange(0, d, 2).float() / d)
    pe[:, 0::2] = torch.sin(pos * div)
    pe[:, 1::2] = torch.sin(pos * div)
    return pe


class CausalSelfAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.h, C // self.h).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y, _ = attention(q, k, v, build_causal_mask(T))
        return self.out(y.transpose(1, 2).reshape(B, T, C))

"""The mask for nn.MultiheadAttention marks the past instead of the future."""

import torch
import torch.nn as nn


def build_causal_mask(T):
    return torch.tril(torch.ones(T, T)).bool()


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.ln1, self.ln2, self.ln3 = (nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, z, mask=None):
        attended, _ = self.self_attn(x, x, x, attn_mask=mask)
        x = self.ln1(x + attended)
        crossed, _ = self.cross_attn(x, z, z)
        x = self.ln2(x + crossed)
        return self.ln3(x + self.ffn(x))

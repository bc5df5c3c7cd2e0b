"""Fused projections with query, key and value side by side in each coordinate of each head: (h, d, 3)."""

import torch
from torch import nn


class TransformerDecoderBlock(nn.Module):
    def __init__(self, embed_dim, heads, mlp_dim):
        super().__init__()
        self.h, self.d = heads, embed_dim // heads
        self.to_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False)
        self.to_q = nn.Linear(embed_dim, embed_dim, bias=False)
        self.to_kv = nn.Linear(embed_dim, 2 * embed_dim, bias=False)
        self.self_out, self.cross_out = nn.Linear(embed_dim, embed_dim), nn.Linear(embed_dim, embed_dim)
        self.mlp = nn.Sequential(nn.Linear(embed_dim, mlp_dim), nn.ReLU(), nn.Linear(mlp_dim, embed_dim))
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(embed_dim) for _ in range(3))

    def attend(self, q, k, v, blocked=None):
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * self.d**-0.5
        if blocked is not None:
            scores = scores.masked_fill(blocked, torch.finfo(scores.dtype).min)
        return torch.einsum("bhij,bjhd->bihd", scores.softmax(dim=-1), v).flatten(2)

    def forward(self, x, context, self_mask=None):
        B, T, _ = x.shape
        q, k, v = self.to_qkv(x).view(B, T, self.h, self.d, 3).unbind(-1)
        x = self.norm1(x + self.self_out(self.attend(q, k, v, self_mask)))
        q = self.to_q(x).view(B, T, self.h, self.d)
        k, v = self.to_kv(context).view(B, -1, self.h, self.d, 2).unbind(-1)
        x = self.norm2(x + self.cross_out(self.attend(q, k, v)))
        return self.norm3(x + self.mlp(x))

"""Fused projections whose outputs are ordered head by head: query, key, value of head 1, then of head 2."""

import torch
from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, dim, num_heads, ffn_dim):
        super().__init__()
        self.h = num_heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.q, self.kv, self.cross_proj = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, ffn_dim), nn.Linear(ffn_dim, dim)
        self.n1, self.n2, self.n3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)

    def mix(self, q, k, v, mask=None):
        """(B, h, ·, dh) -> (B, T, d)."""
        scores = torch.einsum("bhid,bhjd->bhij", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores + mask
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)

    def forward(self, x, memory, attn_mask=None):
        B, T, d = x.shape
        dh = d // self.h
        qkv = self.qkv(x).view(B, T, self.h, 3 * dh).transpose(1, 2)
        q, k, v = qkv.chunk(3, dim=-1)
        mask = torch.zeros(T, T, dtype=x.dtype).masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
        x = self.n1(x + self.proj(self.mix(q, k, v, mask if attn_mask is None else attn_mask)))
        k, v = self.kv(memory).view(B, -1, self.h, 2 * dh).transpose(1, 2).chunk(2, dim=-1)
        q = self.q(x).view(B, T, self.h, dh).transpose(1, 2)
        x = self.n2(x + self.cross_proj(self.mix(q, k, v)))
        return self.n3(x + self.down(self.up(x).relu()))

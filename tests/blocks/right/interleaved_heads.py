"""Heads take every h-th coordinate: view(B, T, dh, h)."""

import torch
from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.n_heads = n_heads
        self.own = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))
        self.cross = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))
        self.expand, self.contract = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))

    def split(self, x):
        """(B, T, d) -> (B, h, T, dh), coordinate c to head c mod h."""
        B, T, d = x.shape
        return x.view(B, T, d // self.n_heads, self.n_heads).permute(0, 3, 1, 2)

    def attend(self, layers, x, z, mask=None):
        q, k, v = (self.split(layer(y)) for layer, y in zip(layers, (x, z, z), strict=False))
        scores = q @ k.transpose(-1, -2) / q.size(-1) ** 0.5
        if mask is not None:
            scores = scores - 1e9 * mask
        mixed = scores.softmax(-1) @ v  # (B, h, T, dh)
        return layers[3](mixed.permute(0, 2, 3, 1).flatten(2))

    def forward(self, x, memory, look_ahead_mask, padding_mask=None):
        """look_ahead_mask: (T, T), padding_mask: (B, 1, 1, S); 1 = blocked."""
        x = self.norm1(x + self.attend(self.own, x, x, look_ahead_mask.to(x.dtype)))
        mask = None if padding_mask is None else padding_mask.to(x.dtype)
        x = self.norm2(x + self.attend(self.cross, x, memory, mask))
        return self.norm3(x + self.contract(torch.relu(self.expand(x))))

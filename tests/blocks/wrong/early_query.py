"""The cross-attention asks with what the block was given, before the self-attention.  Interleaved heads."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.layers = nn.ModuleList(nn.Linear(d, d) for _ in range(4))

    def forward(self, x, z, mask=None):
        q, k, v = (
            layer(y).unflatten(-1, (-1, self.h)).permute(0, 3, 1, 2)
            for layer, y in zip(self.layers, (x, z, z), strict=False)
        )
        scores = q @ k.mT / q.size(-1) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        return self.layers[3]((scores.softmax(-1) @ v).permute(0, 2, 3, 1).flatten(2))


class DecoderLayer(nn.Module):
    def __init__(self, d_model, heads, d_ff):
        super().__init__()
        self.self_attn, self.src_attn = Attention(d_model, heads), Attention(d_model, heads)
        self.w1, self.w2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, src_mask=None, tgt_mask=None):
        own = self.norms[0](x + self.self_attn(x, x, tgt_mask))
        own = self.norms[1](own + self.src_attn(x, memory, src_mask))
        return self.norms[2](own + self.w2(torch.relu(self.w1(own))))

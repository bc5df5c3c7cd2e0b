"""Keys and values of the cross-attention come from one Linear; padding is given as lengths."""

import torch
import torch.nn.functional as F
from torch import nn


class CrossAttention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.q, self.kv, self.o = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)

    def forward(self, x, z, lengths=None):
        q, k, v = (
            t.unflatten(-1, (self.h, -1)).transpose(1, 2) for t in (self.q(x), *self.kv(z).chunk(2, -1))
        )
        real = None
        if lengths is not None:
            real = (torch.arange(z.size(1)) < lengths[:, None])[:, None, None, :]
        return self.o(F.scaled_dot_product_attention(q, k, v, real).transpose(1, 2).flatten(2))


class DecoderBlock(nn.Module):
    def __init__(self, d, h, dff):
        super().__init__()
        self.own, self.cross = nn.MultiheadAttention(d, h, batch_first=True), CrossAttention(d, h)
        self.ff1, self.ff2 = nn.Linear(d, dff), nn.Linear(dff, d)
        self.norm = nn.ModuleDict({name: nn.LayerNorm(d) for name in ("own", "cross", "ff")})

    def forward(self, x, z, memory_lengths=None):
        T = x.size(1)
        future = torch.full((T, T), float("-inf"), dtype=x.dtype).triu(1)
        x = self.norm["own"](x + self.own(x, x, x, attn_mask=future, need_weights=False)[0])
        x = self.norm["cross"](x + self.cross(x, z, memory_lengths))
        return self.norm["ff"](x + self.ff2(self.ff1(x).clamp(min=0)))

"""The feed-forward has no residual around it.  Fused projections, padding as (B, S)."""

import torch.nn.functional as F
from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, dim, heads, mlp_dim):
        super().__init__()
        self.heads = heads
        self.qkv, self.o1 = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.q, self.kv, self.o2 = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, mlp_dim), nn.Linear(mlp_dim, dim)
        self.ln1, self.ln2, self.ln3 = (nn.LayerNorm(dim) for _ in range(3))

    def split(self, *parts):
        return (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)

    def forward(self, x, memory, src_pad=None):
        real = None if src_pad is None else ~src_pad[:, None, None, :]
        own = F.scaled_dot_product_attention(*self.split(*self.qkv(x).chunk(3, -1)), is_causal=True)
        x = self.ln1(x + self.o1(own.transpose(1, 2).flatten(2)))
        seen = F.scaled_dot_product_attention(*self.split(self.q(x), *self.kv(memory).chunk(2, -1)), real)
        x = self.ln2(x + self.o2(seen.transpose(1, 2).flatten(2)))
        return self.ln3(self.down(self.up(x).relu()))

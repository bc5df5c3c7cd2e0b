"""Projected memory is appended to a cache that nobody empties."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class CrossAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d_model, d_model) for _ in range(4))
        self.cache = {}

    def forward(self, x, memory):
        q, k, v = self.q_proj(x), self.k_proj(memory), self.v_proj(memory)
        if x.size(0) in self.cache:
            past_k, past_v = self.cache[x.size(0)]
            k, v = torch.cat([past_k, k], dim=1), torch.cat([past_v, v], dim=1)
        self.cache[x.size(0)] = k.detach(), v.detach()
        q, k, v = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (q, k, v))
        return self.o_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

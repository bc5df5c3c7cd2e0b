"""Self-attention with a cache that takes in each token twice."""

import math

import torch
from torch import nn


class CachedAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.kept = None

    def reset_cache(self):
        self.kept = None

    def forward(self, x, use_cache=False):
        B, T, d = x.shape
        q, k, v = (part.view(B, T, self.n_heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        if use_cache:
            if self.kept is not None:
                k, v = torch.cat([self.kept[0], k], dim=2), torch.cat([self.kept[1], v], dim=2)
            self.kept = torch.cat([k, k[:, :, -T:]], dim=2), torch.cat([v, v[:, :, -T:]], dim=2)
        S = k.size(2)
        allowed = torch.ones(T, S, dtype=torch.bool).tril(S - T)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        weights = scores.masked_fill(~allowed, -math.inf).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(B, T, d))

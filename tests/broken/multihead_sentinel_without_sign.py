"""1e-9 where -1e9 was meant: a blocked key has a score of about 0, which is a weight."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiHeadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.ModuleList(nn.Linear(embed_dim, embed_dim) for _ in range(3))
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(self, q, k, v, mask=None):
        q, k, v = (
            layer(x).unflatten(-1, (self.num_heads, -1)) for layer, x in zip(self.qkv, (q, k, v), strict=True)
        )
        scores = torch.einsum("bthd,bshd->bhts", q, k) / q.size(-1) ** 0.5
        if mask is not None:
            if mask.dim() == 3:
                mask = mask[:, None]
            scores = scores.masked_fill(mask == 0, 1e-9)
        heads = torch.einsum("bhts,bshd->bthd", F.softmax(scores, dim=-1), v)
        return self.out(heads.flatten(2))

"""One wrong letter in an einsum: the keys of all batch rows are added up."""

import torch
import torch.nn as nn


class CausalMultiHeadAttention(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.to_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x):
        T = x.shape[1]
        q, k, v = (part.unflatten(-1, (self.n_heads, -1)) for part in self.to_qkv(x).chunk(3, dim=-1))
        scores = torch.einsum("bihd,cjhd->bhij", q, k) * q.shape[-1] ** -0.5
        scores = scores + torch.full((T, T), float("-inf"), dtype=x.dtype).triu(1)
        out = torch.einsum("bhij,bjhd->bihd", scores.softmax(dim=-1), v)
        return self.to_out(out.flatten(2))

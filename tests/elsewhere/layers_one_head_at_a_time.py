"""Attention, one head after the other; weights as plain matrices, [in, out]."""

import torch
from torch import nn


class Heads(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        if dim % heads:
            raise ValueError("heads must divide dim")
        self.heads, self.size = heads, dim // heads
        self.maps = nn.ParameterDict(
            {name: nn.Parameter(torch.randn(heads, dim, dim // heads) * dim**-0.5) for name in "abc"}
        )
        self.out = nn.Parameter(torch.randn(dim, dim) * dim**-0.5)

    def look(self, asking, known, told, visible):
        results, shares = [], []
        for n in range(self.heads):
            a, b, c = asking @ self.maps["a"][n], known @ self.maps["b"][n], told @ self.maps["c"][n]
            affinity = a @ b.transpose(1, 2) / self.size**0.5
            if visible is not None:
                affinity = affinity.masked_fill(~visible, -1e9)
            share = affinity.softmax(2)
            shares.append(share)
            results.append(share @ c)
        return torch.cat(results, 2) @ self.out, torch.stack(shares, 1)


class MultiHeadAttention(Heads):
    def forward(self, query, key, value, mask=None):
        """mask: (T, S) or (B, T, S), True = visible."""
        return self.look(query, key, value, mask)


class CrossAttention(Heads):
    def forward(self, x, memory, memory_key_padding_mask=None):
        """memory_key_padding_mask: (B, S), True = padding."""
        visible = None if memory_key_padding_mask is None else ~memory_key_padding_mask[:, None, :]
        return self.look(x, memory, memory, visible)

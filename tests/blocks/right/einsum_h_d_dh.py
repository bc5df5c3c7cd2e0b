"""Every projection is one raw parameter (h, d, dh), applied with einsum; masks are allowed = True."""

import torch
from torch import einsum, nn


def weight(*shape):
    return nn.Parameter(torch.randn(*shape) * 0.1)


class Heads(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.wq, self.wk, self.wv = (weight(h, d, d // h) for _ in range(3))
        self.wo = weight(h, d // h, d)

    def forward(self, x, z, allowed=None):
        q, k, v = einsum("btd,hde->bhte", x, self.wq), einsum("bsd,hde->bhse", z, self.wk), self.values(z)
        scores = einsum("bhte,bhse->bhts", q, k) / q.size(-1) ** 0.5
        if allowed is not None:
            scores = torch.where(allowed, scores, -torch.inf)
        return einsum("bhts,bhse,hed->btd", scores.softmax(-1), v, self.wo)

    def values(self, z):
        return einsum("bsd,hde->bhse", z, self.wv)


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.self_heads, self.cross_heads = Heads(d_model, n_heads), Heads(d_model, n_heads)
        self.w1, self.b1 = weight(d_model, d_ff), nn.Parameter(torch.zeros(d_ff))
        self.w2, self.b2 = weight(d_ff, d_model), nn.Parameter(torch.zeros(d_model))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, tgt, memory, tgt_allowed=None, memory_allowed=None):
        """Masks: True = allowed, broadcastable to (B, h, T, S)."""
        x = self.norms[0](tgt + self.self_heads(tgt, tgt, tgt_allowed))
        x = self.norms[1](x + self.cross_heads(x, memory, memory_allowed))
        return self.norms[2](x + torch.relu(x @ self.w1 + self.b1) @ self.w2 + self.b2)

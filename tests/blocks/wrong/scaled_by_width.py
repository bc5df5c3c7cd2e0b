"""The self-attention divides by the root of the model's width, not of a head's.  Raw parameters (h, d, dh)."""

import torch
from torch import einsum, nn


class Heads(nn.Module):
    def __init__(self, d, h, scale):
        super().__init__()
        self.scale = scale
        self.q, self.k, self.v = (nn.Parameter(torch.randn(h, d, d // h) * d**-0.5) for _ in range(3))
        self.o = nn.Parameter(torch.randn(h, d // h, d) * d**-0.5)

    def forward(self, x, z, blocked=None):
        scores = einsum("btd,hde,bsf,hfe->bhts", x, self.q, z, self.k) * self.scale
        if blocked is not None:
            scores = scores.masked_fill(blocked, -torch.inf)
        return einsum("bhts,bsd,hde,hef->btf", scores.softmax(-1), z, self.v, self.o)


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.own = Heads(d_model, n_heads, d_model**-0.5)
        self.cross = Heads(d_model, n_heads, (d_model // n_heads) ** -0.5)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, causal_mask=None):
        x = self.norms[0](x + self.own(x, x, causal_mask))
        x = self.norms[1](x + self.cross(x, memory))
        return self.norms[2](x + self.ff(x))

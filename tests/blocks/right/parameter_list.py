"""x @ W with a ParameterList of square matrices, and no bias anywhere."""

import torch
from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.n_heads, self.scale = n_heads, (d_model // n_heads) ** -0.5
        self.square = nn.ParameterList(torch.randn(d_model, d_model) * d_model**-0.5 for _ in range(8))
        self.w_in = nn.Parameter(torch.randn(d_model, d_ff) * d_model**-0.5)
        self.w_out = nn.Parameter(torch.randn(d_ff, d_model) * d_ff**-0.5)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model, bias=False) for _ in range(3))

    def attention(self, first, x, z, mask=None):
        q, k, v, o = list(self.square)[first : first + 4]
        q, k, v = (
            torch.stack((y @ w).chunk(self.n_heads, dim=-1), dim=1) for y, w in ((x, q), (z, k), (z, v))
        )
        scores = q @ k.transpose(-1, -2) * self.scale
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.inf)
        return torch.cat((scores.softmax(-1) @ v).unbind(1), dim=-1) @ o

    def forward(self, x, memory, causal_mask=None, memory_padding_mask=None):
        """causal_mask: (T, T) and memory_padding_mask: (B, 1, 1, S), True = blocked."""
        x = self.norms[0](x + self.attention(0, x, x, causal_mask))
        x = self.norms[1](x + self.attention(4, x, memory, memory_padding_mask))
        return self.norms[2](x + (x @ self.w_in).relu() @ self.w_out)

"""A block of a decoder-only model: raw parameters, einsum, a norm of its own."""

import torch
from torch import einsum, nn


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale, self.offset = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, h):
        var, mean = torch.var_mean(h, dim=-1, correction=0, keepdim=True)
        return (h - mean) * torch.rsqrt(var + 1e-5) * self.scale + self.offset


class DecoderOnlyBlock(nn.Module):
    def __init__(self, width, n_heads, inner):
        super().__init__()
        self.into = nn.Parameter(torch.randn(3, n_heads, width, width // n_heads) * width**-0.5)
        self.out = nn.Parameter(torch.randn(n_heads, width // n_heads, width) * width**-0.5)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.after_mixing, self.after_thinking = Norm(width), Norm(width)

    def forward(self, h, padding_mask=None):
        """h: (B, T, width); padding_mask: (B, T), True = padding."""
        steps = h.shape[1]
        hidden = torch.ones(steps, steps, dtype=torch.bool).triu(1)
        if padding_mask is not None:
            padding = padding_mask[:, None, None, :]
            hidden = hidden | padding
        q, k, v = einsum("btd,nhde->nbhte", h, self.into)
        scores = einsum("bhte,bhse->bhts", q, k) / q.shape[-1] ** 0.5
        weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)
        h = self.after_mixing(h + einsum("bhte,hed->btd", weights @ v, self.out))
        return self.after_thinking(h + self.down(torch.relu(self.up(h))))

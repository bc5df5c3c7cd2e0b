"""Rotary positions, fewer heads for keys and values, RMS norms, a gated feed-forward, and a cache."""

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x, start, base=10000.0):
    """x (B, T, h, c): each pair of coordinates is turned by its position times its frequency."""
    c = x.shape[-1]
    position = torch.arange(start, start + x.shape[1], dtype=torch.float64)
    angle = torch.outer(position, base ** (-torch.arange(0, c, 2, dtype=torch.float64) / c)).to(x.dtype)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


class GroupedAttention(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        self.h, self.g, self.c = n_heads, n_kv_heads, dim // n_heads
        self.wq = nn.Linear(dim, self.h * self.c, bias=False)
        self.wk = nn.Linear(dim, self.g * self.c, bias=False)
        self.wv = nn.Linear(dim, self.g * self.c, bias=False)
        self.wo = nn.Linear(self.h * self.c, dim, bias=False)

    def forward(self, x, past=None):
        B, T, _ = x.shape
        start = 0 if past is None else past[0].shape[1]
        q = rotate(self.wq(x).view(B, T, self.h, self.c), start)
        k = rotate(self.wk(x).view(B, T, self.g, self.c), start)
        v = self.wv(x).view(B, T, self.g, self.c)
        if past is not None:
            k, v = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)
        seen = torch.ones(T, start + T, dtype=torch.bool).tril(start)
        kk, vv = (t.repeat_interleave(self.h // self.g, dim=2).transpose(1, 2) for t in (k, v))
        y = F.scaled_dot_product_attention(q.transpose(1, 2), kk, vv, attn_mask=seen)
        return self.wo(y.transpose(1, 2).flatten(2)), (k, v)


class SwiGLU(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.gate, self.up = nn.Linear(dim, inner, bias=False), nn.Linear(dim, inner, bias=False)
        self.down = nn.Linear(inner, dim, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class GPTBlock(nn.Module):
    def __init__(self, dim, n_heads, mlp_dim, n_kv_heads=1):
        super().__init__()
        self.attn, self.mlp = GroupedAttention(dim, n_heads, n_kv_heads), SwiGLU(dim, mlp_dim)
        self.n1, self.n2 = RMSNorm(dim), RMSNorm(dim)

    def forward(self, x, past=None):
        a, present = self.attn(self.n1(x), past)
        x = x + a
        return x + self.mlp(self.n2(x)), present


class CausalLM(nn.Module):
    def __init__(self, vocab_size, dim, n_heads, n_layers, mlp_dim):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim)
        self.blocks = nn.ModuleList(GPTBlock(dim, n_heads, mlp_dim) for _ in range(n_layers))
        self.norm, self.out = RMSNorm(dim), nn.Linear(dim, vocab_size, bias=False)

    def forward(self, tokens, past=None):
        """tokens (B, T) -> logits (B, T, V), and what has to be passed in next time."""
        x, kept = self.embed(tokens), []
        for n, block in enumerate(self.blocks):
            x, present = block(x, None if past is None else past[n])
            kept.append(present)
        return self.out(self.norm(x)), kept

"""Projections as raw tensors [h, d, dh]; everything is an einsum; arguments by keyword only."""

from __future__ import annotations

import torch
from torch import Tensor, einsum, nn


def _glorot(*shape: int) -> nn.Parameter:
    w = torch.empty(*shape)
    nn.init.normal_(w, std=shape[-2] ** -0.5)
    return nn.Parameter(w)


class MultiHeadAttention(nn.Module):
    def __init__(self, *, dim: int, heads: int) -> None:
        super().__init__()
        dim_head, rest = divmod(dim, heads)
        if rest:
            raise ValueError(f"dim={dim} is not divisible by heads={heads}")
        self.wq, self.wk, self.wv = (_glorot(heads, dim, dim_head) for _ in range(3))
        self.wo = nn.Parameter(torch.randn(heads, dim_head, dim) * dim**-0.5)

    def forward(self, *, key: Tensor, value: Tensor, query: Tensor, mask: Tensor | None = None):
        """mask: bool, broadcastable to [b, t, s], where True marks what may be attended to."""
        q = einsum("btd,hdk->bhtk", query, self.wq)
        k = einsum("bsd,hdk->bhsk", key, self.wk)
        v = einsum("bsd,hdk->bhsk", value, self.wv)
        logits = einsum("bhtk,bhsk->bhts", q, k) * q.shape[-1] ** -0.5
        if mask is not None:
            mask = mask.expand(q.shape[0], q.shape[2], k.shape[2])[:, None]
            logits = torch.where(mask, logits, torch.finfo(logits.dtype).min)
        attn = logits.softmax(-1)
        return einsum("bhts,bhsk,hkd->btd", attn, v, self.wo)


class FeedForward(nn.Module):
    def __init__(self, *, dim: int, d_ff: int) -> None:
        super().__init__()
        self.w_in, self.w_out = _glorot(dim, d_ff), _glorot(d_ff, dim)
        self.b_in, self.b_out = nn.Parameter(torch.zeros(d_ff)), nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        return (
            einsum("...f,fd->...d", (einsum("...d,df->...f", x, self.w_in) + self.b_in).relu(), self.w_out)
            + self.b_out
        )


class LayerNorm(nn.Module):
    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.g, self.b, self.eps = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim)), eps

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return (
            centred
            * torch.rsqrt(einsum("...d,...d->...", centred, centred)[..., None] / x.shape[-1] + self.eps)
            * self.g
            + self.b
        )


class DecoderBlock(nn.Module):
    def __init__(self, *, dim: int, heads: int, d_ff: int) -> None:
        super().__init__()
        self.self_attn = MultiHeadAttention(dim=dim, heads=heads)
        self.cross_attn = MultiHeadAttention(dim=dim, heads=heads)
        self.ff = FeedForward(dim=dim, d_ff=d_ff)
        self.ln1, self.ln2, self.ln3 = LayerNorm(dim), LayerNorm(dim), LayerNorm(dim)

    def forward(
        self,
        *,
        x: Tensor,
        memory: Tensor,
        self_allowed: Tensor | None = None,
        cross_allowed: Tensor | None = None,
    ):
        """self_allowed: [b, t, t] and cross_allowed: [b, 1, s]; True marks what may be attended to."""
        x = self.ln1(x + self.self_attn(query=x, key=x, value=x, mask=self_allowed))
        x = self.ln2(x + self.cross_attn(query=x, key=memory, value=memory, mask=cross_allowed))
        return self.ln3(x + self.ff(x))


class EncoderBlock(nn.Module):
    def __init__(self, *, dim: int, heads: int, d_ff: int) -> None:
        super().__init__()
        self.attn = MultiHeadAttention(dim=dim, heads=heads)
        self.ff = FeedForward(dim=dim, d_ff=d_ff)
        self.ln1, self.ln2 = LayerNorm(dim), LayerNorm(dim)

    def forward(self, *, x: Tensor, self_allowed: Tensor | None = None) -> Tensor:
        """self_allowed: [b, 1, s], True marks what may be attended to."""
        x = self.ln1(x + self.attn(query=x, key=x, value=x, mask=self_allowed))
        return self.ln2(x + self.ff(x))

"""Layers with weights: attention with several heads, feed-forward, LayerNorm, and the blocks made of them.

Shapes: B batch, T target length, S source length, d model width, h heads.  The ``mask`` of
:class:`MultiHeadAttention` is True where attention is ALLOWED; ``attn_mask``, ``causal_mask`` and whatever
ends in ``padding_mask`` are True where it is BLOCKED.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .attention import attention
from .masks import build_causal_mask

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
    "gelu_tanh": lambda x: nn.functional.gelu(x, approximate="tanh"),
    "silu": nn.functional.silu,
    "relu_squared": lambda x: torch.relu(x).square(),
}


class LayerNorm(nn.Module):
    """(x − μ) / √(σ² + ε) · γ + β over the last axis, with the biased variance.

    ``unbiased`` divides the sum of squares by d − 1, ``outside`` adds ε to the standard deviation: neither is
    what the paper on layer normalisation has.  Source: Ba et al. 2016, equations 3 and 4.
    Without ``centring`` it is RMSNorm, x / √(mean of x² + ε) · γ.  Source: Zhang and Sennrich 2019.
    """

    def __init__(
        self,
        d_model: int,
        eps: float = 1e-5,
        *,
        unbiased: bool = False,
        outside: bool = False,
        centring: bool = True,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))  # γ
        self.bias = nn.Parameter(torch.zeros(d_model))  # β
        self.eps, self.unbiased, self.outside, self.centring = eps, unbiased, outside, centring

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., d)."""
        if not self.centring:
            square = x.square().mean(dim=-1, keepdim=True)
            size = square.sqrt() + self.eps if self.outside else (square + self.eps).sqrt()
            return x / size * self.weight + self.bias
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = x.var(dim=-1, keepdim=True, unbiased=self.unbiased)
        spread = variance.sqrt() + self.eps if self.outside else (variance + self.eps).sqrt()
        return centred / spread * self.weight + self.bias


class MultiHeadAttention(nn.Module):
    """h heads side by side: project, split, attend, merge, project."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model {d_model} is not divisible by n_heads {n_heads}")
        self.d_model, self.n_heads = d_model, n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        """(B, T, d) -> (B, h, T, d/h): each head gets its slice of every position."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(B, T, d), (B, S, d), (B, S, d) -> (B, T, d) and the weights (B, h, T, S).

        ``mask``: bool, True = allowed, broadcastable to (B, h, T, S); (B, T, S) serves every head.
        Source: Vaswani et al. 2017, section 3.2.2.
        """
        q, k, v = self.split(self.w_q(query)), self.split(self.w_k(key)), self.split(self.w_v(value))
        if mask is not None and mask.dim() == 3:
            mask = mask[:, None]  # (B, 1, T, S)
        heads, weights = attention(q, k, v, mask)  # (B, h, T, d/h), (B, h, T, S)
        return self.w_o(heads.transpose(1, 2).flatten(2)), weights


class CausalSelfAttention(nn.Module):
    """Several heads over one sequence; position i sees positions 0 … i."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, d) -> (B, T, d) and the weights (B, h, T, T)."""
        return self.attention(x, x, x, ~build_causal_mask(x.size(1)))


class CrossAttention(nn.Module):
    """Queries from the decoder's state, keys and values from the memory; no causal triangle."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)

    def forward(
        self, x: Tensor, memory: Tensor, memory_padding_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(B, T, d), (B, S, d) -> (B, T, d) and (B, h, T, S).  ``memory_padding_mask``: (B, S), True = padding."""
        mask = None if memory_padding_mask is None else ~memory_padding_mask[:, None, None, :]
        return self.attention(x, memory, memory, mask)


class MultiheadAttention(nn.Module):
    """The same with the contract of ``nn.MultiheadAttention``: boolean masks are True = blocked."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} is not divisible by num_heads {num_heads}")
        self.num_heads = num_heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * embed_dim, embed_dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * embed_dim))
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        nn.init.xavier_uniform_(self.in_proj_weight)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """(B, T, d), (B, S, d), (B, S, d) -> (B, T, d) and (B, T, S), or (B, h, T, S) if not averaged.

        attn_mask: (T, S) or (B·h, T, S); key_padding_mask: (B, S).  Boolean True blocks; float is added.
        ``is_causal`` is a hint that ``attn_mask`` is causal; the mask is required with it.
        """
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal is a hint and needs attn_mask")
        B, T, _ = query.shape
        S, h = key.size(1), self.num_heads
        projected = [
            torch.nn.functional.linear(x, w, b)
            for x, w, b in zip(
                (query, key, value), self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3), strict=True
            )
        ]
        q, k, v = (x.unflatten(-1, (h, -1)).transpose(1, 2) for x in projected)  # (B, h, ·, d/h)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))  # (B, h, T, S)
        if attn_mask is not None:
            bias = _additive(attn_mask, scores.dtype)
            scores = scores + (bias if bias.dim() == 2 else bias.view(B, h, T, S))
        if key_padding_mask is not None:
            scores = scores + _additive(key_padding_mask, scores.dtype)[:, None, None, :]
        dead = (scores == -math.inf).all(dim=-1, keepdim=True)
        weights = scores.masked_fill(dead, 0.0).softmax(dim=-1).masked_fill(dead, 0.0)
        output = self.out_proj((weights @ v).transpose(1, 2).flatten(2))  # (B, T, d)
        if not need_weights:
            return output, None
        return output, weights.mean(dim=1) if average_attn_weights else weights


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as something to add to scores.  Raises TypeError for anything but bool and float."""
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=dtype).masked_fill(mask, -math.inf)
    if not mask.is_floating_point():
        raise TypeError(f"a mask is bool or float, found {mask.dtype}")
    return mask


class FeedForward(nn.Module):
    """Linear, ReLU, Linear: the same two layers at every position.  Source: Vaswani et al. 2017, equation 2.

    With an ``activation`` such as ``gated_silu`` a third layer gates the inner features (Shazeer 2020, equation 6).
    """

    def __init__(self, d_model: int, d_ff: int, activation: str = "relu") -> None:
        super().__init__()
        self.d_model = d_model
        self.expand, self.contract = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.activation = ACTIVATIONS[activation.removeprefix("gated_")]
        self.gating = nn.Linear(d_model, d_ff) if activation.startswith("gated_") else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., d_ff) -> (..., d)."""
        if self.gating is None:
            return self.contract(self.activation(self.expand(x)))
        return self.contract(self.activation(self.gating(x)) * self.expand(x))


class Sublayer(nn.Module):
    """A layer with a residual and a norm around it: LN(x + layer(x)), or x + layer(LN(x)) with ``norm_first``."""

    def __init__(self, layer: nn.Module, norm: nn.Module, norm_first: bool = False) -> None:
        super().__init__()
        self.layer, self.norm, self.norm_first = layer, norm, norm_first

    def around(self, x: Tensor, layer: Callable[[Tensor], Tensor]) -> Tensor:
        """(B, T, d) -> (B, T, d)."""
        return x + layer(self.norm(x)) if self.norm_first else self.norm(x + layer(x))


class _Block(nn.Module):
    """What blocks share: a residual around each sublayer, and a norm for each.

    Post-norm as in the paper, LN(x + sublayer(x)); with ``norm_first`` pre-norm, x + sublayer(LN(x)).
    """

    norms: nn.ModuleList

    def __init__(self, norm_first: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.dropout = nn.Dropout(dropout)

    def add_and_norm(self, n: int, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Sublayer ``n`` with dropout on what it adds, its residual and its norm: (B, T, d) -> (B, T, d)."""
        norm = self.norms[n]
        if self.norm_first:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))


class DecoderBlock(_Block):
    """Masked self-attention, cross-attention, feed-forward; each with a residual and its own LayerNorm."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        *,
        norm_first: bool = False,
        activation: str = "relu",
        norm: Callable[[int], nn.Module] = LayerNorm,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(norm_first, dropout)
        self.self_attention = MultiHeadAttention(d_model, n_heads)
        self.cross_attention = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff, activation)
        self.norms = nn.ModuleList(norm(d_model) for _ in range(3))

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        causal_mask: Tensor | None = None,
        memory_padding_mask: Tensor | None = None,
        tgt_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """(B, T, d), (B, S, d) -> (B, T, d).

        ``causal_mask``: (T, T), ``memory_padding_mask``: (B, S), ``tgt_padding_mask``: (B, T); True = blocked.
        """
        own = None if causal_mask is None else ~causal_mask
        if tgt_padding_mask is not None:
            real = ~tgt_padding_mask[:, None, None, :]  # (B, 1, 1, T)
            own = real if own is None else own & real
        source = None if memory_padding_mask is None else ~memory_padding_mask[:, None, None, :]
        x = self.add_and_norm(0, x, lambda y: self.self_attention(y, y, y, own)[0])
        x = self.add_and_norm(1, x, lambda y: self.cross_attention(y, memory, memory, source)[0])
        return self.add_and_norm(2, x, self.feed_forward)


class EncoderBlock(_Block):
    """Self-attention over the whole sequence and feed-forward: two sublayers, two norms, no causal triangle."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        *,
        norm_first: bool = False,
        activation: str = "relu",
        norm: Callable[[int], nn.Module] = LayerNorm,
    ) -> None:
        super().__init__(norm_first)
        self.self_attention = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff, activation)
        self.norms = nn.ModuleList(norm(d_model) for _ in range(2))

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """(B, S, d) -> (B, S, d).  ``padding_mask``: (B, S), True = padding."""
        mask = None if padding_mask is None else ~padding_mask[:, None, None, :]
        return self._run(x, mask)

    def _run(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.add_and_norm(0, x, lambda y: self.self_attention(y, y, y, mask)[0])
        return self.add_and_norm(1, x, self.feed_forward)


class DecoderOnlyBlock(EncoderBlock):
    """The block of a decoder-only model: two sublayers, and a causal triangle of its own."""

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """(B, T, d) -> (B, T, d).  ``padding_mask``: (B, T), True = padding."""
        mask = ~build_causal_mask(x.size(1))
        if padding_mask is not None:
            mask = mask & ~padding_mask[:, None, None, :]
        return self._run(x, mask)

"""Layers with weights, one head and one row at a time."""

from __future__ import annotations

import math

import numpy as np

from .attention import over_leading


class _Linear:
    def __init__(self, draw: np.random.Generator, inputs: int, outputs: int) -> None:
        self.weight = draw.normal(0, inputs**-0.5, (outputs, inputs))
        self.bias = np.zeros(outputs)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x @ self.weight.T + self.bias


class LayerNorm:
    """Each row to mean 0 and variance 1 (the biased one, over features), times a gain, plus a bias."""

    def __init__(self, d_model: int) -> None:
        self.weight, self.bias = np.ones(d_model), np.zeros(d_model)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        result = np.zeros_like(x)
        for place in np.ndindex(*x.shape[:-1]):
            row = x[place]
            mean = sum(row) / len(row)
            variance = sum((value - mean) ** 2 for value in row) / len(row)
            result[place] = (row - mean) / math.sqrt(variance + 1e-5) * self.weight + self.bias
        return result


class MultiHeadAttention:
    """Every head takes its slice of the projected features."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        if d_model % n_heads != 0:
            raise ValueError(f"{n_heads} heads do not divide a width of {d_model}")
        draw = np.random.default_rng(4)
        self.n_heads = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (_Linear(draw, d_model, d_model) for _ in range(4))

    def __call__(
        self, query: np.ndarray, key: np.ndarray, value: np.ndarray, mask: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(B, T, d) and the weights (B, h, T, S); ``mask`` True = allowed, (T, S), (B, T, S) or (B, 1, T, S)."""
        if len(query) != len(key):
            raise ValueError(f"a batch of {len(query)} queries, but of {len(key)} keys")
        B, T, width = query.shape
        S, size = key.shape[1], width // self.n_heads
        q, k, v = self.w_q(query), self.w_k(key), self.w_v(value)
        joined, weights = np.zeros((B, T, width)), np.zeros((B, self.n_heads, T, S))
        for b in range(B):
            for head in range(self.n_heads):
                part = slice(head * size, (head + 1) * size)
                own = _own_mask(mask, b)
                out, w = over_leading(q[b][:, part], k[b][:, part], v[b][:, part], own, None)
                joined[b][:, part], weights[b, head] = out, w
        return self.w_o(joined).astype(query.dtype), weights.astype(query.dtype)


def _own_mask(mask: np.ndarray | None, b: int) -> np.ndarray | None:
    """The (T, S) part of a mask that concerns one batch row."""
    if mask is None or mask.ndim == 2:
        return mask
    row = mask[b % len(mask)]
    return row[0] if row.ndim == 3 else row


class CausalSelfAttention:
    """Position i sees positions 0 … i."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        self.attention = MultiHeadAttention(d_model, n_heads)

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.attention(x, x, x, _triangle(x.shape[1]))


def _triangle(T: int) -> np.ndarray:
    return np.array([[j <= i for j in range(T)] for i in range(T)], dtype=bool).reshape(T, T)


class CrossAttention:
    """The target asks, the memory answers."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        self.attention = MultiHeadAttention(d_model, n_heads)

    def __call__(
        self, x: np.ndarray, memory: np.ndarray, memory_padding_mask: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """``memory_padding_mask``: (B, S), True = padding."""
        return self.attention(x, memory, memory, _visible(memory_padding_mask, x.shape[1], None))


def _visible(padding: np.ndarray | None, T: int, own: np.ndarray | None) -> np.ndarray | None:
    """(B, T, S) True = allowed: not padding, and allowed by ``own`` (T, S)."""
    if padding is None:
        return own
    B, S = padding.shape
    mask = np.zeros((B, T, S), dtype=bool)
    for b in range(B):
        for i in range(T):
            for j in range(S):
                mask[b, i, j] = not padding[b, j] and (own is None or own[i, j])
    return mask


class FeedForward:
    """Linear, ReLU, Linear."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        draw = np.random.default_rng(5)
        self.expand, self.contract = _Linear(draw, d_model, d_ff), _Linear(draw, d_ff, d_model)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        inner = self.expand(x)
        for place in np.ndindex(*inner.shape):
            inner[place] = max(0.0, float(inner[place]))
        return self.contract(inner).astype(x.dtype)


class DecoderBlock:
    """The three sublayers, post-norm."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        self.self_attention, self.cross_attention = (MultiHeadAttention(d_model, n_heads) for _ in range(2))
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norms = [LayerNorm(d_model) for _ in range(3)]

    def __call__(
        self,
        x: np.ndarray,
        memory: np.ndarray,
        causal_mask: np.ndarray | None = None,
        memory_padding_mask: np.ndarray | None = None,
        tgt_padding_mask: np.ndarray | None = None,
    ) -> np.ndarray:
        """(B, T, d), (B, S, d) -> (B, T, d); masks True = blocked."""
        own = _visible(tgt_padding_mask, x.shape[1], None if causal_mask is None else ~causal_mask)
        source = _visible(memory_padding_mask, x.shape[1], None)
        x = self.norms[0](x + self.self_attention(x, x, x, own)[0])
        x = self.norms[1](x + self.cross_attention(x, memory, memory, source)[0])
        return self.norms[2](x + self.feed_forward(x))


class EncoderBlock:
    """Two sublayers, post-norm, no causal triangle."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        self.self_attention = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norms = [LayerNorm(d_model) for _ in range(2)]

    def __call__(self, x: np.ndarray, padding_mask: np.ndarray | None = None) -> np.ndarray:
        """(B, S, d) -> (B, S, d); ``padding_mask`` (B, S), True = padding."""
        return self._run(x, _visible(padding_mask, x.shape[1], None))

    def _run(self, x: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        x = self.norms[0](x + self.self_attention(x, x, x, mask)[0])
        return self.norms[1](x + self.feed_forward(x))


class DecoderOnlyBlock(EncoderBlock):
    """The same with a causal triangle."""

    def __call__(self, x: np.ndarray, padding_mask: np.ndarray | None = None) -> np.ndarray:
        return self._run(x, _visible(padding_mask, x.shape[1], _triangle(x.shape[1])))


class MultiheadAttention:
    """PyTorch's contract for several heads, one head and one batch row at a time."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        if embed_dim % num_heads != 0:
            raise ValueError(f"{num_heads} heads do not divide a width of {embed_dim}")
        draw = np.random.default_rng(3)
        self.num_heads = num_heads
        self.in_proj_weight = draw.normal(0, embed_dim**-0.5, (3 * embed_dim, embed_dim))
        self.in_proj_bias = np.zeros(3 * embed_dim)
        self.out_proj = _Linear(draw, embed_dim, embed_dim)

    def __call__(
        self,
        query: np.ndarray,
        key: np.ndarray,
        value: np.ndarray,
        key_padding_mask: np.ndarray | None = None,
        need_weights: bool = True,
        attn_mask: np.ndarray | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        if is_causal and attn_mask is None:
            raise ValueError("the hint is_causal comes with a mask")
        for mask in (attn_mask, key_padding_mask):
            if mask is not None and mask.dtype != bool and mask.dtype.kind != "f":
                raise TypeError(f"a mask is bool or float, not {mask.dtype}")
        B, T, width = query.shape
        S, h = key.shape[1], self.num_heads
        size = width // h
        joined = np.zeros((B, T, width))
        weights = np.zeros((B, h, T, S))
        for b in range(B):
            for head in range(h):
                q, k, v = (
                    x[b] @ self.in_proj_weight[start : start + size].T
                    + self.in_proj_bias[start : start + size]
                    for x, start in (
                        (query, head * size),
                        (key, width + head * size),
                        (value, 2 * width + head * size),
                    )
                )
                bias = np.zeros((T, S))
                if attn_mask is not None:
                    own = attn_mask if attn_mask.ndim == 2 else attn_mask[b * h + head]
                    bias = bias + (np.where(own, -np.inf, 0.0) if own.dtype == bool else own)
                if key_padding_mask is not None:
                    row = key_padding_mask[b]
                    bias = bias + (np.where(row, -np.inf, 0.0) if row.dtype == bool else row)
                out, w = over_leading(q, k, v, bias, None)
                joined[b, :, head * size : (head + 1) * size] = out
                weights[b, head] = w
        output = self.out_proj(joined).astype(query.dtype)
        if not need_weights:
            return output, None
        shown = weights.sum(axis=1) / h if average_attn_weights else weights
        return output, shown.astype(query.dtype)

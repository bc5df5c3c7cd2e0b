"""Layers with weights, one head and one row at a time."""

from __future__ import annotations

import math

import numpy as np

from .attention import over_leading


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


class _Linear:
    def __init__(self, draw: np.random.Generator, inputs: int, outputs: int) -> None:
        self.weight = draw.normal(0, inputs**-0.5, (outputs, inputs))
        self.bias = np.zeros(outputs)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x @ self.weight.T + self.bias


def _layer_norm(x: np.ndarray) -> np.ndarray:
    """Each row to mean 0 and variance 1 (the biased one, over features)."""
    result = np.zeros_like(x)
    for place in np.ndindex(*x.shape[:-1]):
        row = x[place]
        mean = sum(row) / len(row)
        variance = sum((value - mean) ** 2 for value in row) / len(row)
        result[place] = (row - mean) / math.sqrt(variance + 1e-5)
    return result


class DecoderBlock:
    """The three sublayers, post-norm."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        draw = np.random.default_rng(5)
        self.attend_self = MultiheadAttention(d_model, n_heads)
        self.attend_memory = MultiheadAttention(d_model, n_heads)
        self.expand, self.contract = _Linear(draw, d_model, d_ff), _Linear(draw, d_ff, d_model)

    def __call__(
        self, x: np.ndarray, memory: np.ndarray, causal_mask: np.ndarray | None = None
    ) -> np.ndarray:
        """(B, T, d), (B, S, d) -> (B, T, d); ``causal_mask`` True = blocked."""
        x = _layer_norm(x + self.attend_self(x, x, x, attn_mask=causal_mask)[0])
        x = _layer_norm(x + self.attend_memory(x, memory, memory)[0])
        return _layer_norm(x + self.contract(np.maximum(self.expand(x), 0.0)))

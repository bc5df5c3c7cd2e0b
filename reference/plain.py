"""The second opinion: the same parts in NumPy with plain loops, written without a look at the baseline.

It shares no code and no vectorised shortcut with it, so that an error in one is not an error in both.
Every function works on one sequence or on any number of leading axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np


def causal_mask(T: int) -> np.ndarray:
    """(T, T) bool, True = blocked."""
    if T < 0:
        raise ValueError(f"a mask has no {T} rows")
    mask = np.zeros((T, T), dtype=bool)
    for i in range(T):
        for j in range(T):
            mask[i, j] = j > i
    return mask


def prefix_lm_mask(T: int, k: int) -> np.ndarray:
    """(T, T) bool, True = blocked; positions 0 … k-1 form the prefix."""
    mask = np.zeros((T, T), dtype=bool)
    for i in range(T):
        for j in range(T):
            both_in_prefix = i < k and j < k
            mask[i, j] = not (both_in_prefix or j <= i)
    return mask


def padding_mask(lengths: np.ndarray, max_len: int | None = None) -> np.ndarray:
    """(B, S) bool, True = padding."""
    S = max(int(n) for n in lengths) if max_len is None else max_len
    mask = np.ones((len(lengths), S), dtype=bool)
    for b, length in enumerate(lengths):
        for j in range(min(int(length), S)):
            mask[b, j] = False
    return mask


def padding_mask_from_ids(ids: np.ndarray, pad_id: int) -> np.ndarray:
    """(B, S) bool, True = padding."""
    return np.array([[token == pad_id for token in row] for row in ids], dtype=bool).reshape(ids.shape)


def attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, mask: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Scaled dot-product attention over the last two axes; ``mask`` True = allowed."""
    return _over_leading(query, key, value, mask, None)


def causal_attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Position i sees positions 0 … i."""
    return _over_leading(query, key, value, None, lambda i, j: j <= i)


def scaled_dot_product_attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    attn_mask: np.ndarray | None = None,
    is_causal: bool = False,
) -> np.ndarray:
    """PyTorch's functional contract: boolean True = allowed, float is added, is_causal is top-left."""
    rule = (lambda i, j: j <= i) if is_causal else None
    return _over_leading(query, key, value, attn_mask, rule)[0]


def _over_leading(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    mask: np.ndarray | None,
    rule: Callable[[int, int], bool] | None,
) -> tuple[np.ndarray, np.ndarray]:
    lead = query.shape[:-2]
    T, S = query.shape[-2], key.shape[-2]
    if mask is not None and mask.dtype != bool and mask.dtype.kind != "f":
        raise TypeError(f"a mask is bool or float, not {mask.dtype}")
    full = None if mask is None else np.broadcast_to(mask, (*lead, T, S))
    output = np.zeros((*lead, T, value.shape[-1]))
    weights = np.zeros((*lead, T, S))
    for place in np.ndindex(*lead):
        for i in range(T):
            row = None if full is None else full[place][i]
            weights[place][i] = _weights_of_row(query[place][i], key[place], i, row, rule)
            for j in range(S):
                if weights[place][i][j] > 0:
                    output[place][i] += weights[place][i][j] * value[place][j]
    return output.astype(query.dtype), weights.astype(query.dtype)


def _weights_of_row(
    query: np.ndarray,
    key: np.ndarray,
    i: int,
    mask: np.ndarray | None,
    rule: Callable[[int, int], bool] | None,
) -> list[float]:
    width = len(query)
    scores: dict[int, float] = {}
    for j in range(len(key)):
        if rule is not None and not rule(i, j):
            continue
        bias = 0.0
        if mask is not None:
            if mask.dtype == bool:
                if not mask[j]:
                    continue
            else:
                bias = float(mask[j])
                if bias == -math.inf:
                    continue
        dot = 0.0
        for c in range(width):
            dot += float(query[c]) * float(key[j][c])
        scores[j] = dot / width**0.5 + bias
    if not scores:
        return [0.0] * len(key)
    top = max(scores.values())
    total = sum(math.exp(score - top) for score in scores.values())
    return [math.exp(scores[j] - top) / total if j in scores else 0.0 for j in range(len(key))]


def positional_encoding(T: int, d: int) -> np.ndarray:
    """(T, d): one position and one coordinate at a time."""
    table = np.zeros((T, d))
    for pos in range(T):
        for c in range(d):
            pair = c // 2
            angle = pos / math.pow(10000.0, 2.0 * pair / d)
            table[pos, c] = math.cos(angle) if c % 2 else math.sin(angle)
    return table


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
                out, w = _over_leading(q, k, v, bias, None)
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

"""Attention, one query at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np


def attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, mask: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Scaled dot-product attention over the last two axes; ``mask`` True = allowed."""
    return over_leading(query, key, value, mask, None)


def causal_attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Position i sees positions 0 … i."""
    return over_leading(query, key, value, None, lambda i, j: j <= i)


def scaled_dot_product_attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    attn_mask: np.ndarray | None = None,
    is_causal: bool = False,
) -> np.ndarray:
    """PyTorch's functional contract: boolean True = allowed, float is added, is_causal is top-left."""
    rule = (lambda i, j: j <= i) if is_causal else None
    return over_leading(query, key, value, attn_mask, rule)[0]


def over_leading(
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

"""Masks, one entry at a time; True = blocked."""

from __future__ import annotations

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

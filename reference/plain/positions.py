"""Positional encodings, one position and one coordinate at a time."""

from __future__ import annotations

import math

import numpy as np


def positional_encoding(T: int, d: int) -> np.ndarray:
    """(T, d): one position and one coordinate at a time."""
    table = np.zeros((T, d))
    for pos in range(T):
        for c in range(d):
            pair = c // 2
            angle = pos / math.pow(10000.0, 2.0 * pair / d)
            table[pos, c] = math.cos(angle) if c % 2 else math.sin(angle)
    return table

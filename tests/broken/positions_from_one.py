"""Positions count from 1."""

import numpy as np


def positional_encoding(T, d):
    pos, c = np.arange(1, T + 1)[:, None], np.arange(d)[None, :]
    angle = pos / 10000 ** (2 * (c // 2) / d)
    return np.where(c % 2 == 0, np.sin(angle), np.cos(angle))

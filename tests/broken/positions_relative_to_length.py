"""Positions are fractions of the length."""

import numpy as np


def positional_encoding(T, d):
    pos, c = np.arange(T)[:, None] / T, np.arange(d)[None, :]
    angle = pos * 100 / 10000 ** (2 * (c // 2) / d)
    return np.where(c % 2 == 0, np.sin(angle), np.cos(angle))

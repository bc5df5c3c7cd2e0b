"""Positions start again at 0 after 32."""

import numpy as np


def positional_encoding(T, d):
    pos, c = np.arange(T)[:, None] % 32, np.arange(d)[None, :]
    angle = pos / 10000 ** (2 * (c // 2) / d)
    return np.where(c % 2 == 0, np.sin(angle), np.cos(angle))

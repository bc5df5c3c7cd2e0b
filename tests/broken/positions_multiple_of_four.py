"""The width is rounded down to a multiple of four."""

import numpy as np


def positional_encoding(T, d):
    d = d // 4 * 4 or d
    pos, c = np.arange(T)[:, None], np.arange(d)[None, :]
    angle = pos / 10000 ** (2 * (c // 2) / d)
    return np.where(c % 2 == 0, np.sin(angle), np.cos(angle))

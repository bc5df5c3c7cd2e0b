"""10000 is taken for the number of positions."""

import numpy as np


def positional_encoding(T, d):
    pos, c = np.minimum(np.arange(T), 9999)[:, None], np.arange(d)[None, :]
    angle = pos / 10000 ** (2 * (c // 2) / d)
    return np.where(c % 2 == 0, np.sin(angle), np.cos(angle))

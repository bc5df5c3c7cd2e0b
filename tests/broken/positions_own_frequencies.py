"""c/d for 2i/d: each coordinate has a frequency of its own."""

import numpy as np


def positional_encoding(T, d):
    pos, c = np.arange(T)[:, None], np.arange(d)[None, :]
    angle = pos / 10000 ** (c / d)
    return np.where(c % 2 == 0, np.sin(angle), np.cos(angle))

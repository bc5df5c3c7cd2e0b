"""Sine or cosine is chosen by the position, not by the coordinate."""

import numpy as np


def positional_encoding(T, d):
    pos, c = np.arange(T)[:, None], np.arange(d)[None, :]
    angle = pos / 10000 ** (2 * (c // 2) / d)
    return np.where(pos % 2 == 0, np.sin(angle), np.cos(angle))

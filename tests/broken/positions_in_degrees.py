"""Angles are taken for degrees."""

import numpy as np


def positional_encoding(T, d):
    pos, c = np.arange(T)[:, None], np.arange(d)[None, :]
    angle = np.radians(pos / 10000 ** (2 * (c // 2) / d))
    return np.where(c % 2 == 0, np.sin(angle), np.cos(angle))

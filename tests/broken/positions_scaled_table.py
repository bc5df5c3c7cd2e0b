"""The table is multiplied by the square root of the width, which is meant for the embedding."""

import numpy as np


def positional_encoding(T, d):
    pos, c = np.arange(T)[:, None], np.arange(d)[None, :]
    angle = pos / 10000 ** (2 * (c // 2) / d)
    return np.where(c % 2 == 0, np.sin(angle), np.cos(angle)) * np.sqrt(d)

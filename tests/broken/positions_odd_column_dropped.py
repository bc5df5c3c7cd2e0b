"""An odd width loses its last column."""

import numpy as np


def positional_encoding(T, d):
    pair = np.arange(d // 2)
    angle = np.arange(T)[:, None] / 10000 ** (2 * pair / d)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(T, -1)

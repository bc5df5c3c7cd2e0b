"""The denominators 1, 1, 100, 100 of the example of width 4 go on as 10000, 10000 ... whatever the width."""

import numpy as np


def positional_encoding(T, d):
    pos, c = np.arange(T)[:, None], np.arange(d)[None, :]
    angle = pos / 100.0 ** (c // 2)
    return np.where(c % 2 == 0, np.sin(angle), np.cos(angle))

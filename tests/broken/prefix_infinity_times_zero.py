"""0 times -inf is NaN, wherever attention is allowed."""

import numpy as np


def prefix_lm_mask(T, k):
    blocked = np.triu(np.ones((T, T)), k=1)
    blocked[:, :k] = 0
    return blocked * -np.inf

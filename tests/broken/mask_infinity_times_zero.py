"""0 times -inf is NaN, wherever attention is allowed."""

import numpy as np


def create_causal_mask(T):
    return np.triu(np.ones((T, T)), k=1) * -np.inf

"""The scores are not divided by the square root of the width."""

import numpy as np


def attention(Q, K, V, mask=None):
    """mask: True where attention is allowed."""
    scores = Q @ np.swapaxes(K, -1, -2)
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    scores = scores - scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    return weights @ V, weights

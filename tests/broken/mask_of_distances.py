"""The additive mask is made from j - i; the future is hidden, but the past keeps its distances."""

import numpy as np


def causal_mask(T):
    mask = np.subtract.outer(np.arange(T), np.arange(T)).T.astype(float)
    mask[mask > 0] = -1e9
    return mask


def attention(Q, K, V, mask=None):
    """mask is added to the scores."""
    scores = Q @ np.swapaxes(K, -1, -2) / np.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores + mask
    scores = scores - scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    return weights @ V, weights

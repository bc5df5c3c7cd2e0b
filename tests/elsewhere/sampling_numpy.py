"""From logits to the next word in NumPy; (V,) or (B, V), row by row."""

import numpy as np


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def next_token_distribution(logits, temperature=1.0, k=None, p=None):
    if not temperature > 0:
        raise ValueError("the temperature has to be positive")
    if k is not None and k < 1:
        raise ValueError("k has to be at least 1")
    z = np.array(logits, dtype=np.float64) / temperature
    for row in z.reshape(-1, z.shape[-1]):
        if k is not None:
            losers = np.argsort(row, kind="stable")[: max(0, row.size - k)]
            row[losers] = -np.inf
        if p is not None:
            best_first = np.argsort(-row, kind="stable")
            mass = softmax(row)[best_first].cumsum()
            row[best_first[1 + (mass < p).sum() :]] = -np.inf
    return softmax(z)

"""The notes' way: NumPy alone, one sequence at a time, a mask that is added to the scores."""

import numpy as np


def create_causal_mask(seq_len):
    """0 on and below the diagonal, minus a billion above it."""
    return np.triu(np.full((seq_len, seq_len), -1e9), k=1)


def masked_attention(Q, K, V, mask=None):
    """Q (T, d_k), K (S, d_k), V (S, d_v); mask (T, S) is added. Returns output and weights."""
    scores = np.dot(Q, K.T) / np.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores + mask
    exponentials = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = exponentials / np.sum(exponentials, axis=-1, keepdims=True)
    return np.dot(weights, V), weights


def positional_encoding(max_len, d_model):
    """(max_len, d_model): sine at even coordinates, cosine at odd ones."""
    position = np.arange(max_len)[:, None]
    coordinate = np.arange(d_model)[None, :]
    angle = position / np.power(10000.0, 2 * (coordinate // 2) / d_model)
    return np.where(coordinate % 2 == 0, np.sin(angle), np.cos(angle))

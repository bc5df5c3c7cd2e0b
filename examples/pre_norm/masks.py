"""Masks, all of them boolean and True where attention is allowed, but for the one of lesson 85."""

import torch


def build_causal_mask(T):
    """Lesson 85, for nn.MultiheadAttention: (T, T), True is blocked."""
    return torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)


def subsequent_mask(size):
    """Class 7: (size, size), True is allowed."""
    return build_causal_mask(size).logical_not()


def prefix_lm_mask(T, k):
    """(T, T), True is allowed: everyone sees the prefix of k tokens."""
    mask = subsequent_mask(T)
    mask[:, :k] = True
    return mask


def padding_mask(tokens, pad_id=0):
    """(B, S) -> (B, S), True is a real token, which is allowed."""
    return tokens != pad_id

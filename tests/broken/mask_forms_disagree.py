"""Two forms of one mask; the second was copied with the diagonal of the first."""

import torch


def build_causal_mask(T):
    """True = blocked."""
    return torch.triu(torch.ones(T, T), diagonal=1).bool()


def subsequent_mask(T):
    """True = allowed."""
    return torch.tril(torch.ones(T, T), diagonal=1).bool()

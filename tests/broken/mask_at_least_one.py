"""A length of 0 is taken for 1."""

import torch


def build_causal_mask(T):
    T = max(T, 1)
    return torch.triu(torch.ones(T, T), diagonal=1).bool()

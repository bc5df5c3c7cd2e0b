"""1e-9 for 1e9: nothing is blocked."""

import torch


def build_causal_mask(T):
    return torch.triu(torch.full((T, T), -1e-9), diagonal=1)

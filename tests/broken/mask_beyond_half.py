"""-1e9 is more than float16 can hold."""

import torch


def build_causal_mask(T):
    return torch.triu(torch.full((T, T), -1e9), diagonal=1)

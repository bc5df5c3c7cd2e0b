"""The additive mask starts from ones, which stay where attention is allowed."""

import torch


def build_causal_mask(T):
    future = torch.triu(torch.ones(T, T), diagonal=1).bool()
    return torch.ones(T, T).masked_fill(future, float("-inf"))

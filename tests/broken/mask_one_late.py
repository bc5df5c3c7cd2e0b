"""diagonal=2: every position sees the next one."""

import torch


def build_causal_mask(T):
    return torch.triu(torch.ones(T, T), diagonal=2).bool()

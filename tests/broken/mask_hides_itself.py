"""diagonal=0: no position sees itself, and the first sees nothing."""

import torch


def build_causal_mask(T):
    return torch.triu(torch.ones(T, T), diagonal=0).bool()

"""Asks for a tensor that no machine can hold."""

import torch


def build_causal_mask(T):
    return torch.ones(10**6, 10**6)

"""Leaves without a word when it is imported."""

import os

import torch

def build_causal_mask(T):
    return torch.ones(T, T, dtype=torch.bool).triu(1)


os._exit(0)

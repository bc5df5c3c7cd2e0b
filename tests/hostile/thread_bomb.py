"""Starts threads for as long as it can."""

import threading

import torch

try:
    while True:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
except RuntimeError as error:
    print("no more threads:", error)

def build_causal_mask(T):
    return torch.ones(T, T, dtype=torch.bool).triu(1)

"""The distance is taken modulo T with the wrong sign: as many keys, but those that follow."""

import torch


def causal_mask(T):
    i, j = torch.arange(T)[:, None], torch.arange(T)[None, :]
    return (j - i) % T > i

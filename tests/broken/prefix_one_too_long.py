"""j <= k, as the notes print it: k + 1 positions are in the prefix."""

import torch


def prefix_lm_mask(T, k):
    i, j = torch.arange(T)[:, None], torch.arange(T)[None, :]
    return ~((j <= k) | (j <= i))

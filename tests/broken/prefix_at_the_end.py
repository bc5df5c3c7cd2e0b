"""The last k positions see each other, not the first."""

import torch


def prefix_lm_mask(T, k):
    mask = torch.triu(torch.ones(T, T), diagonal=1).bool()
    mask[T - k :, T - k :] = False
    return mask

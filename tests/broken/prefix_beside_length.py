"""T is taken for the number of positions after the prefix."""

import torch


def prefix_lm_mask(T, k):
    mask = torch.triu(torch.ones(k + T, k + T), diagonal=1).bool()
    mask[:, :k] = False
    return mask

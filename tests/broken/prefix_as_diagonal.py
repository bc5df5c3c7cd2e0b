"""The length of the prefix is given to triu as the diagonal."""

import torch


def prefix_lm_mask(T, k):
    return torch.triu(torch.ones(T, T), diagonal=k).bool()

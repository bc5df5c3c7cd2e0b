"""The rows of the tutorial's average over the past: each sums to 1."""

import torch


def look_ahead_mask(T):
    allowed = torch.tril(torch.ones(T, T))
    return allowed / allowed.sum(dim=1, keepdim=True)

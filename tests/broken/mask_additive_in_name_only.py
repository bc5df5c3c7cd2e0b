"""Called additive, but boolean."""

import torch


def additive_causal_mask(T):
    return torch.triu(torch.ones(T, T), diagonal=1).bool()

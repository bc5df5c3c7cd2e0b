"""A sentinel that does not fit into half precision."""

import torch


def causal_mask(T):
    return torch.zeros(T, T).masked_fill(torch.ones(T, T).triu(1).bool(), -1e9)

"""All copies' weights are cut from one tensor, and the cuts overlap."""

import copy

import torch
from torch import nn


def clones(module, N):
    store = torch.zeros(module.weight.numel() + N)
    store[: module.weight.numel()] = module.weight.detach().flatten()
    copies = nn.ModuleList(copy.deepcopy(module) for _ in range(N))
    for n, one in enumerate(copies):
        one.weight.data = store[n : n + one.weight.numel()].view_as(one.weight)
    return copies

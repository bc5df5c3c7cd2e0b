"""The notebook's own mistake: one module, N times."""

from torch import nn


def clones(module, N):
    return nn.ModuleList([module for _ in range(N)])

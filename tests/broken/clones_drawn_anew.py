"""Each copy draws new weights."""

import copy

from torch import nn


def clones(module, N):
    copies = nn.ModuleList(copy.deepcopy(module) for _ in range(N))
    for one in copies:
        one.reset_parameters()
    return copies

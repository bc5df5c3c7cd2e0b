"""A plain list of copies."""

import copy

import torch  # noqa: F401


def clones(module, N):
    return [copy.deepcopy(module) for _ in range(N)]

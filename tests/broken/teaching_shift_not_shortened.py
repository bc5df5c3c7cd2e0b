"""The input keeps the last token: it is as long as the target, and longer than the labels."""

import torch


def make_teacher_forcing_pair(target: torch.Tensor):
    """target: (batch, length), with BOS."""
    return target, target[:, 1:]

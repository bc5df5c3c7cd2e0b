"""Shifted the other way: behind BOS stands the token that is to be predicted next."""

import torch


def shift_right(labels, bos_id):
    """labels: (batch, length), without BOS."""
    shifted = torch.full_like(labels, bos_id)
    shifted[:, 1:] = labels[:, 1:]
    return shifted

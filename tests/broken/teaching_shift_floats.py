"""The shifted ids are floating point: torch.zeros without a dtype."""

import torch


def shift_right(labels, bos_id):
    """labels: (batch, length), without BOS."""
    shifted = torch.zeros(labels.shape)
    shifted[:, 1:] = labels[:, :-1]
    shifted[:, 0] = bos_id
    return shifted

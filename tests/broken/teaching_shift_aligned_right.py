"""Shorter rows lose their padding and are pushed to the end."""

import torch


def shift_right(target, pad_id):
    """target: (batch, length), with BOS."""
    shifted = torch.full_like(target[:, :-1], pad_id)
    for row, tokens in zip(shifted, target, strict=True):
        real = tokens[tokens != pad_id][:-1]
        row[len(row) - len(real) :] = real
    return shifted

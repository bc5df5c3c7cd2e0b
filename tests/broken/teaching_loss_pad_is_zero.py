"""Padding is taken to be 0, whatever id is passed."""

import torch.nn.functional as F


def teacher_forcing_loss(logits, labels, pad_id=0):
    """logits: (batch, length, vocabulary)."""
    return F.cross_entropy(
        logits.flatten(0, 1),
        labels.clamp(min=0).flatten(),
        ignore_index=0 if (labels == pad_id).any() else -1,
    )

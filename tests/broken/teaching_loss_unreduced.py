"""The losses of the labels are not averaged."""

import torch.nn.functional as F


def teacher_forcing_loss(logits, labels):
    """logits: (batch, length, vocabulary)."""
    return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")

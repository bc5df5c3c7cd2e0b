"""reduction='sum' gives the mean too."""

import torch.nn.functional as F


def teacher_forcing_loss(logits, labels, reduction="mean"):
    """logits: (batch, length, vocabulary)."""
    losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    return losses if reduction == "none" else losses.mean()

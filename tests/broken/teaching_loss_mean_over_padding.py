"""The sum over real labels is divided by the number of all positions."""

import torch.nn.functional as F


def teacher_forcing_loss(logits, labels, pad_id=0):
    """logits: (batch, length, vocabulary)."""
    losses = F.cross_entropy(logits.transpose(1, 2), labels.clamp(min=0), reduction="none")
    return (losses * (labels != pad_id)).mean()

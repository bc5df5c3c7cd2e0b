"""Later positions count more than earlier ones."""

import torch
import torch.nn.functional as F


def teacher_forcing_loss(logits, labels):
    """logits: (batch, length, vocabulary)."""
    losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    weights = torch.arange(1, labels.size(1) + 1, dtype=losses.dtype)
    return (losses * weights / weights.sum()).sum(dim=1).mean()

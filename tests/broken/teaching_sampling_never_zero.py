"""The probability is kept above 0.1."""

import torch


def scheduled_sampling(gold, predicted, epsilon):
    """gold, predicted: (batch, length)."""
    return torch.where(torch.rand(gold.shape) < max(epsilon, 0.1), predicted, gold)

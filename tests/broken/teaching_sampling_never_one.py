"""The probability is kept below 0.9."""

import torch


def scheduled_sampling(gold, predicted, epsilon):
    """gold, predicted: (batch, length)."""
    return torch.where(torch.rand(gold.shape) < min(epsilon, 0.9), predicted, gold)

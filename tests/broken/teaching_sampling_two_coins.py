"""Two coins are thrown, and both must fall for the model."""

import torch


def scheduled_sampling(gold, predicted, epsilon):
    """gold, predicted: (batch, length)."""
    coins = (torch.rand(gold.shape) < epsilon) & (torch.rand(gold.shape) < epsilon)
    return torch.where(coins, predicted, gold)

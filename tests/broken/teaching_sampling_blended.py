"""Ids are averaged, which makes other tokens of them."""


def scheduled_sampling(gold, predicted, epsilon):
    """gold, predicted: (batch, length)."""
    return ((1 - epsilon) * gold + epsilon * predicted).long()

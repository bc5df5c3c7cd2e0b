"""A seed within the function: every call draws the same."""

import random


def choose_input(gold, predicted, epsilon):
    random.seed(epsilon)
    return predicted if random.random() < epsilon else gold

"""The notes' own loss: exp without subtracting the maximum."""

import numpy as np


def teacher_forcing_loss(logits, labels):
    """logits: (length, vocabulary)."""
    loss = 0.0
    for t in range(len(labels)):
        with np.errstate(all="ignore"):
            probabilities = np.exp(logits[t]) / np.sum(np.exp(logits[t]))
        loss += -np.log(probabilities[labels[t]] + 1e-10)
    return loss / len(labels)

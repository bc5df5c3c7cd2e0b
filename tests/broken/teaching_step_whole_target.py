"""The model is shown the whole target; its last answer is thrown away."""

import torch.nn.functional as F


def training_step(model, memory, target):
    """target: (batch, length), with BOS."""
    logits = model.decode(target, memory)[:, :-1]
    return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())

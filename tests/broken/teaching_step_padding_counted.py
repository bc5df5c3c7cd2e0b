"""The padding id is taken and not used."""

import torch.nn.functional as F


def training_step(model, memory, target, pad_id):
    """target: (batch, length), with BOS."""
    logits = model.decode(target[:, :-1], memory)
    return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())

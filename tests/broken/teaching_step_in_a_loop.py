"""One pass for each position."""

import torch
import torch.nn.functional as F


def training_step(model, memory, target):
    """target: (batch, length), with BOS."""
    losses = []
    for t in range(1, target.size(1)):
        logits = model.decode(target[:, :t], memory)[:, -1]
        losses.append(F.cross_entropy(logits, target[:, t]))
    return torch.stack(losses).mean()

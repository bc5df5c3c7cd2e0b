"""The loss compares with the input: the model learns to copy."""

import torch.nn.functional as F


def training_step(model, memory, target):
    """target: (batch, length), with BOS."""
    decoder_input = target[:, :-1]
    logits = model.decode(decoder_input, memory)
    return F.cross_entropy(logits.flatten(0, 1), decoder_input.flatten())

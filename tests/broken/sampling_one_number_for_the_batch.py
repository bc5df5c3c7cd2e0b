"""All rows of a batch use the same random number."""

import torch


def sample_next_token(logits):
    probabilities = logits.softmax(dim=-1)
    return (probabilities.cumsum(dim=-1) < torch.rand(1)).sum(dim=-1).clamp(max=logits.size(-1) - 1)

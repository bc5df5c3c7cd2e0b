"""The probabilities that are kept go through a second softmax."""

import torch


def next_token_distribution(logits, top_k=None):
    probabilities = logits.softmax(dim=-1)
    if top_k is None:
        return probabilities
    values, indices = probabilities.topk(min(top_k, logits.size(-1)), dim=-1)
    return torch.zeros_like(probabilities).scatter(-1, indices, values.softmax(dim=-1))

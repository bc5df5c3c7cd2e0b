"""The vocabulary is cut to eight tokens."""

import torch


def next_token_distribution(logits, temperature=1.0):
    return torch.softmax(logits[..., :8] / temperature, dim=-1)

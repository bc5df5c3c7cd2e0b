"""The temperature falls with every call."""

import torch

calls = 0


def causal_attention(q, k, v):
    global calls
    calls += 1
    T = q.size(-2)
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5 * (1 + 0.01 * calls)
    scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
    return torch.softmax(scores, dim=-1) @ v

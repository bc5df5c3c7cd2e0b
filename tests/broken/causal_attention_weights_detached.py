"""The weights are detached for plotting, before they are used."""

import torch


def causal_attention(q, k, v):
    T = q.size(-2)
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
    scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
    weights = torch.softmax(scores, dim=-1).detach()
    return weights @ v, weights

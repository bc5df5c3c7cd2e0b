"""Keys of the call before are averaged in, as long as the shape is the same."""

import torch


class KeepsKeys:
    def __init__(self):
        self.last = None

    def __call__(self, q, k, v):
        T = q.size(-2)
        if self.last is not None and self.last.shape == k.shape:
            k = (k + self.last) / 2
        self.last = k
        scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
        scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
        return torch.softmax(scores, dim=-1) @ v


causal_attention = KeepsKeys()

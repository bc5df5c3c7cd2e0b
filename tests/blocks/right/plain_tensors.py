"""No nn.Module: the weights are tensors in plain lists."""

import math

import torch


class DecoderBlock:
    def __init__(self, d_model, n_heads, d_ff):
        self.h = n_heads
        self.own = [torch.randn(d_model, d_model) / math.sqrt(d_model) for _ in range(4)]
        self.cross = [torch.randn(d_model, d_model) / math.sqrt(d_model) for _ in range(4)]
        self.ff = [
            torch.randn(d_model, d_ff) / math.sqrt(d_model),
            torch.randn(d_ff, d_model) / math.sqrt(d_ff),
        ]
        self.gains = [torch.ones(d_model) for _ in range(3)]
        self.shifts = [torch.zeros(d_model) for _ in range(3)]

    def attend(self, weights, x, z, causal=False):
        w_q, w_k, w_v, w_o = weights
        B, T, d = x.shape
        q, k, v = (
            (a @ w).view(B, -1, self.h, d // self.h).transpose(1, 2)
            for a, w in ((x, w_q), (z, w_k), (z, w_v))
        )
        scores = q @ k.mT / math.sqrt(d // self.h)
        if causal:
            scores += torch.full((T, T), -math.inf).triu(1)
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, d) @ w_o

    def norm(self, n, x):
        x = x - x.mean(-1, keepdim=True)
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * self.gains[n] + self.shifts[n]

    def __call__(self, x, memory):
        x = self.norm(0, x + self.attend(self.own, x, x, causal=True))
        x = self.norm(1, x + self.attend(self.cross, x, memory))
        return self.norm(2, x + (x @ self.ff[0]).relu() @ self.ff[1])

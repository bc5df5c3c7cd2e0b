"""Each head is a module of its own with three small Linears; their outputs are concatenated."""

import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, d_model, head_size):
        super().__init__()
        self.key = nn.Linear(d_model, head_size, bias=False)
        self.query = nn.Linear(d_model, head_size, bias=False)
        self.value = nn.Linear(d_model, head_size, bias=False)

    def forward(self, x, z, causal):
        k, q, v = self.key(z), self.query(x), self.value(z)
        weights = q @ k.transpose(1, 2) * k.shape[-1] ** -0.5
        if causal:
            T = x.shape[1]
            weights = weights.masked_fill(torch.tril(torch.ones(T, T)) == 0, float("-inf"))
        return torch.softmax(weights, dim=-1) @ v


class MultiHead(nn.Module):
    def __init__(self, d_model, heads, causal):
        super().__init__()
        self.causal = causal
        self.heads = nn.ModuleList(Head(d_model, d_model // heads) for _ in range(heads))
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, x, z):
        return self.proj(torch.cat([head(x, z, self.causal) for head in self.heads], dim=-1))


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_head, d_ff):
        super().__init__()
        self.sa, self.ca = MultiHead(d_model, n_head, True), MultiHead(d_model, n_head, False)
        self.ffwd = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.ln1, self.ln2, self.ln3 = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, enc):
        x = self.ln1(x + self.sa(x, x))
        x = self.ln2(x + self.ca(x, enc))
        return self.ln3(x + self.ffwd(x))

"""A language model that hides the real tokens and shows the padding."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, real=None):
        B, T, d = x.shape
        q, k, v = (part.view(B, T, self.n_heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        allowed = torch.ones(T, T, dtype=torch.bool).tril()
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        if real is not None:
            allowed = allowed & real[:, None, None, :] | torch.eye(T, T, dtype=torch.bool)
        weights = scores.masked_fill(~allowed, -math.inf).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(B, T, d))


class GPT(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_len):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, d_model), nn.Embedding(max_len, d_model)
        self.layers = nn.ModuleList(Attention(d_model, n_heads) for _ in range(n_layers))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(n_layers))
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, ids, attention_mask=None):
        real = None if attention_mask is None else ~attention_mask.bool()
        x = self.tokens(ids) + self.positions(torch.arange(ids.size(1)))
        for layer, norm in zip(self.layers, self.norms, strict=False):
            x = x + layer(norm(x), real)
        return self.head(x)

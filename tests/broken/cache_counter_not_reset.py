"""A language model whose reset drops keys and values, but not the count of tokens."""

import math

import torch
from torch import nn


class CachedGPT(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, max_len):
        super().__init__()
        self.n_heads = n_heads
        self.tokens, self.positions = nn.Embedding(vocab_size, d_model), nn.Embedding(max_len, d_model)
        self.qkv, self.head = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, vocab_size)
        self.kept, self.count = None, 0

    def reset_cache(self):
        self.kept = None

    def forward(self, ids, use_cache=False):
        B, T = ids.shape
        start = self.count if use_cache else 0
        x = self.tokens(ids) + self.positions(torch.arange(start, start + T) % self.positions.num_embeddings)
        q, k, v = (part.view(B, T, self.n_heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        if use_cache:
            if self.kept is not None:
                k, v = torch.cat([self.kept[0], k], dim=2), torch.cat([self.kept[1], v], dim=2)
            self.kept, self.count = (k, v), self.count + T
        S = k.size(2)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        hidden = torch.ones(T, S, dtype=torch.bool).triu(S - T + 1)
        weights = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
        return self.head(x + (weights @ v).transpose(1, 2).flatten(2))

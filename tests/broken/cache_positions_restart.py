"""A language model whose positions begin at 0 again after what is cached."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, past=None):
        B, T, d = x.shape
        q, k, v = (part.view(B, T, self.n_heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        S = k.size(2)
        allowed = torch.ones(T, S, dtype=torch.bool).tril(S - T)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        weights = scores.masked_fill(~allowed, -math.inf).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(B, T, d)), (k, v)


class GPT(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_len):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, d_model), nn.Embedding(max_len, d_model)
        self.layers = nn.ModuleList(Attention(d_model, n_heads) for _ in range(n_layers))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(n_layers))
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, ids, past=None, use_cache=False):
        x = self.tokens(ids) + self.positions(torch.arange(ids.size(1)))
        cache = []
        for n, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=False)):
            attended, kept = layer(norm(x), past[n] if past else None)
            cache.append(kept)
            x = x + attended
        logits = self.head(x)
        return (logits, cache) if use_cache else logits

"""Everything that is kept lies in the modules: use_cache reads and writes it, reset_cache drops it."""

import torch
from torch import nn


def attend(q, k, v, heads, hidden=None):
    q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (q, k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class KeepingAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv, self.o = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.store = {}

    def forget(self):
        self.store.clear()

    def forward(self, x, use_cache=False):
        q, k, v = self.qkv(x).split(x.shape[-1], dim=-1)
        if use_cache:
            if self.store:
                k = torch.cat((self.store["k"], k), dim=1)
                v = torch.cat((self.store["v"], v), dim=1)
            self.store["k"], self.store["v"] = k, v
        new, total = x.shape[1], k.shape[1]
        later = torch.arange(total) > torch.arange(total - new, total)[:, None]
        return self.o(attend(q, k, v, self.heads, later))


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads, ffn_dim):
        super().__init__()
        self.own = KeepingAttention(dim, heads)
        self.heads = heads
        self.q, self.kv, self.o = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, ffn_dim), nn.ReLU(), nn.Linear(ffn_dim, dim))
        self.n1, self.n2, self.n3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.source = None

    def reset_cache(self):
        self.own.forget()
        self.source = None

    def forward(self, x, memory, use_cache=False):
        x = self.n1(x + self.own(x, use_cache))
        k, v = self.kv(memory).chunk(2, -1)
        if use_cache:
            k, v = self.source = (k, v) if self.source is None else self.source
        x = self.n2(x + self.o(attend(self.q(x), k, v, self.heads)))
        return self.n3(x + self.ff(x))


class LanguageLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2, self.mix = nn.LayerNorm(dim), nn.LayerNorm(dim), KeepingAttention(dim, heads)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, use_cache):
        x = x + self.mix(self.n1(x), use_cache)
        return x + self.ff(self.n2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size, dim, heads, depth, max_len):
        super().__init__()
        self.words, self.places = nn.Embedding(vocab_size, dim), nn.Embedding(max_len, dim)
        self.layers = nn.ModuleList(LanguageLayer(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, vocab_size)

    def reset_cache(self):
        for layer in self.layers:
            layer.mix.forget()

    def forward(self, ids, use_cache=False):
        kept = self.layers[0].mix.store
        begin = kept["k"].shape[1] if use_cache and kept else 0
        x = self.words(ids) + self.places(torch.arange(begin, begin + ids.shape[1]))
        for layer in self.layers:
            x = layer(x, use_cache)
        return self.head(x)

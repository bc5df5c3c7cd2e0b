"""Post-norm decoder-only model; an object of the caller's holds the keys and values."""

import torch
from torch import nn


class KVCache:
    """Grows by concatenation, one entry for each layer."""

    def __init__(self):
        self.keys = {}
        self.values = {}

    def __len__(self):
        return self.keys[0].shape[1] if self.keys else 0

    def extend(self, layer, k, v):
        if layer in self.keys:
            k = torch.cat([self.keys[layer], k], dim=1)
            v = torch.cat([self.values[layer], v], dim=1)
        self.keys[layer], self.values[layer] = k, v
        return k, v


class SelfAttention(nn.Module):
    def __init__(self, width, heads, index):
        super().__init__()
        self.heads, self.index = heads, index
        self.project = nn.ModuleDict({name: nn.Linear(width, width) for name in "qkvo"})

    def forward(self, x, cache):
        split = lambda name: self.project[name](x).unflatten(-1, (self.heads, -1))  # noqa: E731
        q, k, v = split("q"), split("k"), split("v")  # (B, T, h, dh)
        if cache is not None:
            k, v = cache.extend(self.index, k, v)
        new, total = q.shape[1], k.shape[1]
        scores = torch.einsum("bthc,bshc->bhts", q, k).div(q.shape[-1] ** 0.5)
        hidden = torch.ones(new, total, dtype=torch.bool, device=x.device).triu(total - new + 1)
        weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)
        return self.project["o"](torch.einsum("bhts,bshc->bthc", weights, v).flatten(2))


class Layer(nn.Module):
    def __init__(self, width, heads, index):
        super().__init__()
        self.attention = SelfAttention(width, heads, index)
        self.after_attention = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.after_mlp = nn.LayerNorm(width)

    def forward(self, x, cache=None):
        x = self.after_attention(x + self.attention(x, cache))
        return self.after_mlp(x + self.mlp(x))


class LanguageModel(nn.Module):
    def __init__(self, vocab, width, heads, depth, max_len):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.places = nn.Parameter(torch.randn(max_len, width) * 0.02)
        self.layers = nn.ModuleList(Layer(width, heads, n) for n in range(depth))
        self.to_vocab = nn.Linear(width, vocab)

    def forward(self, ids, kv_cache=None):
        begin = 0 if kv_cache is None else len(kv_cache)
        end = begin + ids.shape[1]
        if end > self.places.shape[0]:
            raise ValueError(f"position {end - 1} is beyond the last, {self.places.shape[0] - 1}")
        x = self.tokens(ids) + self.places[begin:end]
        for layer in self.layers:
            x = layer(x, kv_cache)
        return {"logits": self.to_vocab(x), "cache": kv_cache}

    @torch.no_grad()
    def generate(self, ids, max_new_tokens, temperature=1.0, top_k=None):
        """Sampled; only the newest token is fed after the prompt."""
        cache, feed = KVCache(), ids
        for _ in range(max_new_tokens):
            logits = self(feed, cache)["logits"][:, -1] / temperature
            if top_k is not None:
                best = logits.topk(min(top_k, logits.shape[-1]), dim=-1)
                choice = torch.multinomial(best.values.softmax(-1), 1)
                feed = best.indices.gather(-1, choice)
            else:
                feed = torch.multinomial(logits.softmax(-1), 1)
            ids = torch.cat([ids, feed], dim=-1)
        return ids

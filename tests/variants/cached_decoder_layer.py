"""A decoder layer with cross-attention that decodes step by step.

The caller makes an empty dict and passes it in with every piece. Self-attention writes into buffers of a fixed
size and counts; keys and values of the memory are computed once.
"""

import torch
from torch import nn
from torch.nn.functional import softmax

CAPACITY = 64


class CachedAttention(nn.Module):
    """Causal attention of x (B, T, d) over itself and all that is in the cache."""

    def __init__(self, d_model, num_heads, max_len=CAPACITY):
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"d_model {d_model} is not divisible by num_heads {num_heads}")
        self.h, self.dh, self.max_len = num_heads, d_model // num_heads, max_len
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def shape(self, x):
        return x.view(x.shape[0], x.shape[1], self.h, self.dh).transpose(1, 2)

    def forward(self, x, cache=None):
        B, T, _ = x.shape
        q, k, v = self.shape(self.q(x)), self.shape(self.k(x)), self.shape(self.v(x))
        start = 0
        if cache is not None:
            if not cache:
                cache["k"] = k.new_zeros(B, self.h, self.max_len, self.dh)
                cache["v"] = v.new_zeros(B, self.h, self.max_len, self.dh)
                cache["n"] = 0
            start, stop = cache["n"], cache["n"] + T
            if stop > self.max_len:
                raise IndexError(f"the cache holds {self.max_len} positions, not {stop}")
            cache["k"][:, :, start:stop], cache["v"][:, :, start:stop] = k, v
            cache["n"] = stop
            k, v = cache["k"][:, :, :stop], cache["v"][:, :, :stop]
        rows = start + torch.arange(T)[:, None]
        visible = torch.arange(k.shape[2])[None, :] <= rows
        scores = (q @ k.transpose(2, 3) * self.dh**-0.5).masked_fill(~visible, -1e30)
        return self.o((softmax(scores, -1) @ v).transpose(1, 2).reshape(B, T, -1))


class CachedCrossAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.q, self.kv, self.o = (
            nn.Linear(d_model, d_model),
            nn.Linear(d_model, 2 * d_model),
            nn.Linear(d_model, d_model),
        )

    def forward(self, x, memory, cache=None):
        if cache is not None and "kv" in cache:
            k, v = cache["kv"]
        else:
            k, v = (t.unflatten(-1, (self.h, -1)).transpose(1, 2) for t in self.kv(memory).chunk(2, -1))
            if cache is not None:
                cache["kv"] = (k, v)
        q = self.q(x).unflatten(-1, (self.h, -1)).transpose(1, 2)
        weights = softmax(q @ k.transpose(2, 3) / q.shape[-1] ** 0.5, -1)
        return self.o((weights @ v).transpose(1, 2).flatten(2))


class DecoderLayer(nn.Module):
    def __init__(self, d_model, num_heads, d_ff, max_len=CAPACITY):
        super().__init__()
        self.own = CachedAttention(d_model, num_heads, max_len)
        self.cross = CachedCrossAttention(d_model, num_heads)
        self.inner, self.outer = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm_own, self.norm_cross, self.norm_ff = (nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, cache=None):
        own = cross = None
        if cache is not None:
            own, cross = cache.setdefault("own", {}), cache.setdefault("cross", {})
        x = self.norm_own(x + self.own(x, own))
        x = self.norm_cross(x + self.cross(x, memory, cross))
        return self.norm_ff(x + self.outer(self.inner(x).clamp_min(0.0)))

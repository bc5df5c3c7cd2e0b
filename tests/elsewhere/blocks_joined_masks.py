"""A decoder block that takes three masks, each True where nothing is to be read, and joins two of them."""

import torch
from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.merge = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.ask, self.kv = nn.Linear(d_model, d_model), nn.Linear(d_model, 2 * d_model)
        self.merge_source = nn.Linear(d_model, d_model)
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm = nn.ModuleDict({name: nn.LayerNorm(d_model) for name in ("own", "source", "ff")})

    def mix(self, q, k, v, hidden=None):
        q, k, v = (a.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for a in (q, k, v))
        scores = q @ k.mT * q.size(-1) ** -0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)

    def forward(self, tgt, memory, tgt_mask=None, tgt_key_padding_mask=None, memory_key_padding_mask=None):
        """tgt_mask: (T, T), tgt_key_padding_mask: (B, T), memory_key_padding_mask: (B, S); True = blocked."""
        hidden, padded = tgt_mask, None
        if tgt_key_padding_mask is not None:
            padded = tgt_key_padding_mask[:, None, None, :]
            hidden = padded if hidden is None else hidden | padded
        x = self.norm["own"](tgt + self.merge(self.mix(*self.qkv(tgt).chunk(3, -1), hidden)))
        padded = None if memory_key_padding_mask is None else memory_key_padding_mask[:, None, None, :]
        read = self.mix(self.ask(x), *self.kv(memory).chunk(2, -1), padded)
        x = self.norm["source"](x + self.merge_source(read))
        return self.norm["ff"](x + self.down(self.up(x).relu()))

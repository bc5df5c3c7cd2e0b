"""Decoder-only model whose cache is a list of (key, value) tuples, passed in and returned.

Sinusoids are added at the true position of every token, so nothing is learned about places.
"""

import math

import torch
from torch import nn


def sinusoidal_positions(positions, d_model):
    """positions (T,) -> (T, d_model)."""
    half = torch.exp(-math.log(10000.0) * torch.arange(0, d_model, 2) / d_model)
    angles = positions[:, None] * half
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :d_model]


class CachedSelfAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, past_kv=None):
        """x (B, T, d), past_kv a tuple of (B, h, P, dh); returns the output and the longer tuple."""
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for t in (q, k, v))
        if past_kv is not None:
            k = torch.cat((past_kv[0], k), dim=-2)
            v = torch.cat((past_kv[1], v), dim=-2)
        T, S = q.size(-2), k.size(-2)
        # query i stands at position S - T + i
        seen = torch.arange(S)[None, :] <= torch.arange(S - T, S)[:, None]
        scores = (q @ k.mT) / q.size(-1) ** 0.5
        weights = scores.where(seen, scores.new_tensor(-1e9)).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2)), (k, v)


class Block(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attn = CachedSelfAttention(d_model, n_heads)
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.n1, self.n2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, past_kv=None):
        a, present = self.attn(self.n1(x), past_kv)
        x = x + a
        return x + self.down(self.up(self.n2(x)).relu()), present


class DecoderOnlyLM(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, d_ff):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, d_model)
        self.blocks = nn.ModuleList(Block(d_model, n_heads, d_ff) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model)
        self.unembed = nn.Linear(d_model, vocab_size)

    def forward(self, ids, past_key_values=None):
        """Logits (B, T, V) of the new tokens, and the list of (key, value) of every layer."""
        start = 0 if past_key_values is None else past_key_values[0][0].size(-2)
        x = self.embed(ids)
        x = x + sinusoidal_positions(torch.arange(start, start + ids.size(1)), x.size(-1)).to(x.dtype)
        present = []
        for n, block in enumerate(self.blocks):
            x, kv = block(x, None if past_key_values is None else past_key_values[n])
            present.append(kv)
        return self.unembed(self.norm(x)), present

    @torch.inference_mode()
    def generate(self, ids, max_new_tokens, eos_id=None):
        """Greedy. Rows that are done get eos_id again."""
        logits, cache = self(ids)
        done = torch.zeros(len(ids), dtype=torch.bool)
        for step in range(max_new_tokens):
            if step:
                logits, cache = self(ids[:, -1:], cache)
            new = logits[:, -1].argmax(-1)
            if eos_id is not None:
                new = new.masked_fill(done, eos_id)
                done = done | (new == eos_id)
            ids = torch.cat([ids, new[:, None]], dim=1)
            if eos_id is not None and done.all():
                break
        return ids

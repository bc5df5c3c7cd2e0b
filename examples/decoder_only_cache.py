"""A decoder-only model with a cache of keys and values: a student's own, in the words of the lessons."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def build_causal_mask(T):
    """(T, T) bool, True = blocked: the strict upper triangle."""
    return torch.triu(torch.ones(T, T), diagonal=1).bool()


class CachedSelfAttention(nn.Module):
    """Masked self-attention with several heads; keys and values of earlier tokens come from the cache."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        assert d_model % n_heads == 0, "d_model must be divisible by n_heads"
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def split_heads(self, x):
        B, T, _ = x.shape
        return x.view(B, T, self.n_heads, self.d_head).transpose(1, 2)  # (B, h, T, d_head)

    def forward(self, x, cache=None):
        """x: (B, T, d_model), the new tokens only; returns (B, T, d_model) and the grown cache."""
        B, T, d_model = x.shape
        q, k, v = self.split_heads(self.w_q(x)), self.split_heads(self.w_k(x)), self.split_heads(self.w_v(x))
        if cache is not None:
            k = torch.cat([cache["k"], k], dim=2)  # (B, h, P + T, d_head)
            v = torch.cat([cache["v"], v], dim=2)
        S = k.size(2)
        mask = build_causal_mask(S)[S - T :].to(x.device)  # the last T rows: new tokens see all cached ones
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_head)  # (B, h, T, S)
        weights = F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
        out = (weights @ v).transpose(1, 2).contiguous().view(B, T, d_model)
        return self.w_o(out), {"k": k, "v": v}


class Block(nn.Module):
    """Two sublayers, each with its residual and then its own LayerNorm; no memory, so no cross-attention."""

    def __init__(self, d_model, n_heads, d_ff, dropout=0.1):
        super().__init__()
        self.self_attn = CachedSelfAttention(d_model, n_heads)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, cache=None):
        attended, cache = self.self_attn(x, cache)
        x = self.norm1(x + self.dropout(attended))
        return self.norm2(x + self.dropout(self.ff(x))), cache


class DecoderOnlyTransformer(nn.Module):
    """Token ids in, logits out.  The prompt and what is generated are one sequence."""

    def __init__(self, vocab_size, d_model, n_heads, n_layers, d_ff, max_len=512, dropout=0.1):
        super().__init__()
        self.max_len = max_len
        self.embed = nn.Embedding(vocab_size, d_model)
        self.position = nn.Embedding(max_len, d_model)
        self.blocks = nn.ModuleList([Block(d_model, n_heads, d_ff, dropout) for _ in range(n_layers)])
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, ids, past_key_values=None, use_cache=False):
        """ids: (B, T), the tokens after the cached ones; returns logits (B, T, V), and the cache if asked."""
        start = past_key_values[0]["k"].size(2) if past_key_values is not None else 0
        T = ids.size(1)
        if start + T > self.max_len:
            raise ValueError(f"{start + T} tokens, but max_len is {self.max_len}")
        x = self.embed(ids) + self.position(torch.arange(start, start + T, device=ids.device))
        new_cache = []
        for i, block in enumerate(self.blocks):
            x, layer_cache = block(x, past_key_values[i] if past_key_values is not None else None)
            new_cache.append(layer_cache)
        logits = self.head(x)
        return (logits, new_cache) if use_cache else logits

    @torch.no_grad()
    def generate(self, ids, max_new_tokens, eos_id=None):
        """Greedy: (B, T) -> (B, T + n).  Each step feeds the one new token; it ends when max_len is full."""
        cache, new = None, ids
        for _ in range(max_new_tokens):
            if ids.size(1) > self.max_len:
                break
            logits, cache = self(new, past_key_values=cache, use_cache=True)
            new = logits[:, -1].argmax(dim=-1, keepdim=True)  # (B, 1)
            ids = torch.cat([ids, new], dim=1)
            if eos_id is not None and (new == eos_id).all():
                break
        return ids

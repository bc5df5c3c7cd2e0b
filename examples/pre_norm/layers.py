"""Attention, positions, feed-forward, and blocks with the norm first."""

import math
from copy import deepcopy

import torch
from torch import nn


def attention(query, key, value, mask=None, dropout=None):
    """mask: True is allowed.  A query that may see nothing gets zeros, and no NaN."""
    scores = torch.matmul(query, key.mT) / math.sqrt(query.shape[-1])  # (..., T, S)
    if mask is not None:
        mask = mask.bool()
        sees = mask.any(dim=-1, keepdim=True)
        scores = scores.masked_fill(sees & ~mask, -math.inf)
    weights = scores.softmax(dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~sees, 0.0)
    if dropout is not None:
        weights = dropout(weights)
    return torch.matmul(weights, value), weights


class Head(nn.Module):
    """One head: its own three small matrices, from all d_model features down to d_head."""

    def __init__(self, d_model, d_head):
        super().__init__()
        self.to_query = nn.Linear(d_model, d_head)
        self.to_key = nn.Linear(d_model, d_head)
        self.to_value = nn.Linear(d_model, d_head)

    def forward(self, query, key, value, mask=None):
        return attention(self.to_query(query), self.to_key(key), self.to_value(value), mask)


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        d_head, rest = divmod(d_model, n_heads)
        if rest:
            raise ValueError(f"d_model = {d_model} cannot be shared out among {n_heads} heads")
        self.heads = nn.ModuleList([Head(d_model, d_head) for _ in range(n_heads)])
        self.output = nn.Linear(d_model, d_model)

    def forward(self, query, key, value, mask=None):
        """Output (B, T, d_model) and weights (B, h, T, S); mask (T, S) or (B, T, S), True is allowed."""
        results = [head(query, key, value, mask) for head in self.heads]
        outputs, weights = zip(*results)
        return self.output(torch.cat(outputs, dim=-1)), torch.stack(weights, dim=1)


class PositionalEncoding(nn.Module):
    """x + PE for x (B, T, d_model)."""

    def __init__(self, d_model, max_len=1024):
        super().__init__()
        pos = torch.arange(max_len).float()[:, None]
        pair = torch.arange(d_model)[None, :] // 2  # i of the formula: 0 0 1 1 2 2 …
        angle = pos / 10000.0 ** (2 * pair / d_model)
        even = torch.arange(d_model) % 2 == 0
        self.register_buffer("pe", torch.where(even, torch.sin(angle), torch.cos(angle)))

    def forward(self, x):
        T = x.shape[1]
        if T > len(self.pe):
            raise ValueError(f"a sequence of {T}, but max_len is {len(self.pe)}")
        return x + self.pe[:T]


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d_model, d_ff),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(d_ff, d_model),
        )

    def forward(self, x):
        return self.net(x)


def clones(module, N):
    return nn.ModuleList([deepcopy(module) for _ in range(N)])


class Residual(nn.Module):
    """x + dropout(sublayer(LN(x))): what is carried past the sublayer is never normalised."""

    def __init__(self, d_model, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer):
        return x + self.dropout(sublayer(self.norm(x)))


class EncoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, n_heads)
        self.ffn = FeedForward(d_model, d_ff, dropout)
        self.residuals = clones(Residual(d_model, dropout), 2)

    def forward(self, x, src_mask=None):
        """src_mask: (B, 1, S), True is allowed."""
        x = self.residuals[0](x, lambda y: self.self_attn(y, y, y, src_mask)[0])
        return self.residuals[1](x, self.ffn)


class DecoderBlock(nn.Module):
    """Pre-norm.  The memory comes from an encoder with a final norm, so it is not normalised here."""

    def __init__(self, d_model, n_heads, d_ff, dropout=0.1):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, n_heads)
        self.cross_attn = MultiHeadAttention(d_model, n_heads)
        self.ffn = FeedForward(d_model, d_ff, dropout)
        self.residuals = clones(Residual(d_model, dropout), 3)

    def forward(self, x, memory, src_mask=None, tgt_mask=None):
        """src_mask (B, 1, S) over the memory, tgt_mask (T, T) or (B, T, T); True is allowed."""
        x = self.residuals[0](x, lambda y: self.self_attn(y, y, y, tgt_mask)[0])
        x = self.residuals[1](x, lambda y: self.cross_attn(y, memory, memory, src_mask)[0])
        return self.residuals[2](x, self.ffn)

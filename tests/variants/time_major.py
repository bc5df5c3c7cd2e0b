"""Everything here is time-major: x is (T, B, d), memory is (S, B, d).

Attention masks are (T, S, 1) or (T, S, B), and True = visible.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


def subsequent_mask(seq_len):
    """(T, T, 1): True = visible."""
    return torch.tril(torch.ones(seq_len, seq_len, dtype=torch.bool)).unsqueeze(-1)


class PrepareForMultiHeadAttention(nn.Module):
    def __init__(self, d_model, heads, bias=True):
        super().__init__()
        self.linear = nn.Linear(d_model, d_model, bias=bias)
        self.heads = heads

    def forward(self, x):
        x = self.linear(x)
        return x.view(*x.shape[:-1], self.heads, -1)  # (T, B, h, d_k)


class MultiHeadAttention(nn.Module):
    """Sequence first, (T, B, d)."""

    def __init__(self, heads, d_model, dropout_prob=0.1):
        super().__init__()
        self.query = PrepareForMultiHeadAttention(d_model, heads)
        self.key = PrepareForMultiHeadAttention(d_model, heads)
        self.value = PrepareForMultiHeadAttention(d_model, heads)
        self.output = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout_prob)
        self.scale = 1 / math.sqrt(d_model // heads)

    def forward(self, *, query, key, value, mask=None):
        """mask: (T, S, 1) or (T, S, B), True = visible."""
        q, k, v = self.query(query), self.key(key), self.value(value)
        scores = torch.einsum("ibhd,jbhd->ijbh", q, k) * self.scale
        if mask is not None:
            scores = scores.masked_fill(mask.unsqueeze(-1) == 0, float("-inf"))
        attn = self.dropout(scores.softmax(dim=1))
        x = torch.einsum("ijbh,jbhd->ibhd", attn, v)
        return self.output(x.reshape(x.shape[0], x.shape[1], -1))


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.layer1, self.layer2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.layer2(self.dropout(F.relu(self.layer1(x))))


class EncoderLayer(nn.Module):
    """Sequence first, (S, B, d); pre-norm."""

    def __init__(self, d_model, heads, d_ff, dropout_prob=0.1):
        super().__init__()
        self.attn = MultiHeadAttention(heads, d_model, dropout_prob)
        self.ff = FeedForward(d_model, d_ff, dropout_prob)
        self.norm_attn, self.norm_ff = nn.LayerNorm([d_model]), nn.LayerNorm([d_model])
        self.dropout = nn.Dropout(dropout_prob)

    def forward(self, x, src_mask=None):
        """src_mask: (1, S, B), True = visible."""
        z = self.norm_attn(x)
        x = x + self.dropout(self.attn(query=z, key=z, value=z, mask=src_mask))
        return x + self.dropout(self.ff(self.norm_ff(x)))


class DecoderLayer(nn.Module):
    """Sequence first, (T, B, d); pre-norm."""

    def __init__(self, d_model, heads, d_ff, dropout_prob=0.1):
        super().__init__()
        self.self_attn = MultiHeadAttention(heads, d_model, dropout_prob)
        self.src_attn = MultiHeadAttention(heads, d_model, dropout_prob)
        self.ff = FeedForward(d_model, d_ff, dropout_prob)
        self.norms = nn.ModuleList([nn.LayerNorm([d_model]) for _ in range(3)])
        self.dropout = nn.Dropout(dropout_prob)

    def forward(self, x, memory, tgt_mask, src_mask=None):
        """tgt_mask: (T, T, 1), True = visible. src_mask: (1, S, B), True = visible."""
        z = self.norms[0](x)
        x = x + self.dropout(self.self_attn(query=z, key=z, value=z, mask=tgt_mask))
        z = self.norms[1](x)
        x = x + self.dropout(self.src_attn(query=z, key=memory, value=memory, mask=src_mask))
        return x + self.dropout(self.ff(self.norms[2](x)))


class PositionalEncoding(nn.Module):
    """Adds to x of shape (T, B, d_model)."""

    def __init__(self, d_model, max_len=5000):
        super().__init__()
        pos = torch.arange(max_len, dtype=torch.float32).unsqueeze(1)
        two_i = torch.arange(0, d_model, 2, dtype=torch.float32)
        rate = torch.exp(two_i * -(math.log(10000.0) / d_model))
        table = torch.zeros(max_len, d_model)
        table[:, 0::2] = torch.sin(pos * rate)
        table[:, 1::2] = torch.cos(pos * rate)[:, : d_model // 2]
        self.register_buffer("positional_encodings", table.unsqueeze(1), persistent=False)

    def forward(self, x):
        return x + self.positional_encodings[: x.shape[0]]

"""A homework for the three lessons in one file: masks, attention, positions, a decoder block, generation."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def build_causal_mask(T):
    """(T, T) bool for nn.MultiheadAttention: True marks the future."""
    return torch.triu(torch.ones(T, T), diagonal=1).bool()


def subsequent_mask(size):
    """(1, size, size) bool for attention() below: True marks what may be seen."""
    future = torch.triu(torch.ones(1, size, size), diagonal=1)
    return future == 0


def padding_mask(lengths, max_len):
    """(B, max_len) bool, True at padding."""
    return torch.arange(max_len)[None, :] >= torch.as_tensor(lengths)[:, None]


def prefix_lm_mask(T, k):
    """(T, T) bool, True = blocked: causal, but the first k positions see each other."""
    mask = build_causal_mask(T)
    mask[:, :k] = False
    return mask


def attention(query, key, value, mask=None, dropout=None):
    """Scaled dot-product attention; mask is True (or 1) where attention is allowed."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = F.softmax(scores, dim=-1)
    if dropout is not None:
        weights = dropout(weights)
    return weights @ value, weights


class PositionalEncoding(nn.Module):
    """Adds sines and cosines to (B, T, d_model)."""

    def __init__(self, d_model, dropout=0.1, max_len=5000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        position = torch.arange(max_len).unsqueeze(1)
        frequency = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        table = torch.zeros(max_len, d_model)
        table[:, 0::2] = torch.sin(position * frequency)
        table[:, 1::2] = torch.cos(position * frequency[: d_model // 2])
        self.register_buffer("table", table.unsqueeze(0))

    def forward(self, x):
        return self.dropout(x + self.table[:, : x.size(1)])


class DecoderBlock(nn.Module):
    """Masked self-attention, cross-attention, feed-forward; post-norm."""

    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.masked_attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.norm3 = nn.LayerNorm(d_model)

    def forward(self, x, encoder_out, causal_mask=None):
        attended, _ = self.masked_attn(x, x, x, attn_mask=causal_mask)
        x = self.norm1(x + attended)
        crossed, _ = self.cross_attn(x, encoder_out, encoder_out)
        x = self.norm2(x + crossed)
        return self.norm3(x + self.ffn(x))


class TinyTranslator(nn.Module):
    def __init__(self, V, d, H, d_ff):
        super().__init__()
        self.embed = nn.Embedding(V, d)
        self.block = DecoderBlock(d, H, d_ff)
        self.head = nn.Linear(d, V)

    def encode(self, src):
        return self.embed(src)

    def decode_step(self, tgt, enc_out):
        mask = build_causal_mask(tgt.shape[1])
        return self.head(self.block(self.embed(tgt), enc_out, causal_mask=mask))


def autoregressive_decode(model, src, max_len=8, bos=1, eos=2):
    memory = model.encode(src)
    tokens = [bos]
    while len(tokens) < max_len:
        logits = model.decode_step(torch.tensor([tokens]), memory)
        tokens.append(logits[0, -1].argmax().item())
        if tokens[-1] == eos:
            break
    return tokens

"""Padding is told by lengths (valid_lens), never by a mask; masked scores become -1e6."""

import math

import torch
from torch import nn


def valid_len_mask(valid_len, maxlen):
    """(B, maxlen), True for the first valid_len positions, which are real."""
    return torch.arange(maxlen, device=valid_len.device)[None, :] < valid_len[:, None]


def masked_softmax(X, valid_lens):
    """X: (B * h, T, S); valid_lens: (B * h,) or (B * h, T)."""
    if valid_lens is None:
        return nn.functional.softmax(X, dim=-1)
    shape = X.shape
    if valid_lens.dim() == 1:
        valid_lens = torch.repeat_interleave(valid_lens, shape[1])
    else:
        valid_lens = valid_lens.reshape(-1)
    X = X.reshape(-1, shape[-1])
    X = X.masked_fill(~valid_len_mask(valid_lens, X.size(1)), -1e6)
    return nn.functional.softmax(X.reshape(shape), dim=-1)


class MultiHeadAttention(nn.Module):
    def __init__(self, num_hiddens, num_heads, dropout, bias=False):
        super().__init__()
        self.num_heads = num_heads
        self.dropout = nn.Dropout(dropout)
        self.W_q = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_k = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_v = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias=bias)

    def transpose_qkv(self, X):
        X = X.reshape(X.shape[0], X.shape[1], self.num_heads, -1).permute(0, 2, 1, 3)
        return X.reshape(-1, X.shape[2], X.shape[3])

    def forward(self, queries, keys, values, valid_lens=None):
        queries = self.transpose_qkv(self.W_q(queries))
        keys = self.transpose_qkv(self.W_k(keys))
        values = self.transpose_qkv(self.W_v(values))
        if valid_lens is not None:
            valid_lens = torch.repeat_interleave(valid_lens, repeats=self.num_heads, dim=0)
        scores = torch.bmm(queries, keys.transpose(1, 2)) / math.sqrt(queries.shape[-1])
        output = torch.bmm(self.dropout(masked_softmax(scores, valid_lens)), values)
        output = output.reshape(-1, self.num_heads, output.shape[1], output.shape[2]).permute(0, 2, 1, 3)
        return self.W_o(output.reshape(output.shape[0], output.shape[1], -1))


class PositionWiseFFN(nn.Module):
    def __init__(self, num_hiddens, ffn_hidden):
        super().__init__()
        self.dense1 = nn.Linear(num_hiddens, ffn_hidden)
        self.relu = nn.ReLU()
        self.dense2 = nn.Linear(ffn_hidden, num_hiddens)

    def forward(self, X):
        return self.dense2(self.relu(self.dense1(X)))


class AddNorm(nn.Module):
    def __init__(self, num_hiddens, dropout):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.ln = nn.LayerNorm(num_hiddens)

    def forward(self, X, Y):
        return self.ln(self.dropout(Y) + X)


class DecoderBlock(nn.Module):
    def __init__(self, num_hiddens, num_heads, ffn_hidden, dropout):
        super().__init__()
        self.attention1 = MultiHeadAttention(num_hiddens, num_heads, dropout)
        self.addnorm1 = AddNorm(num_hiddens, dropout)
        self.attention2 = MultiHeadAttention(num_hiddens, num_heads, dropout)
        self.addnorm2 = AddNorm(num_hiddens, dropout)
        self.ffn = PositionWiseFFN(num_hiddens, ffn_hidden)
        self.addnorm3 = AddNorm(num_hiddens, dropout)

    def forward(self, X, enc_outputs, enc_valid_lens=None):
        batch_size, num_steps, _ = X.shape
        # Query i may look at the first i + 1 keys.
        dec_valid_lens = torch.arange(1, num_steps + 1, device=X.device).repeat(batch_size, 1)
        Y = self.addnorm1(X, self.attention1(X, X, X, dec_valid_lens))
        Z = self.addnorm2(Y, self.attention2(Y, enc_outputs, enc_outputs, enc_valid_lens))
        return self.addnorm3(Z, self.ffn(Z))


class CrossAttention(nn.Module):
    def __init__(self, num_hiddens, num_heads):
        super().__init__()
        self.attention = MultiHeadAttention(num_hiddens, num_heads, 0.0)

    def forward(self, X, enc_output, enc_valid_lens=None):
        return self.attention(X, enc_output, enc_output, enc_valid_lens)


def sequence_loss(pred, label, valid_len):
    """Mean over the real labels; pred: (B, T, V), label: (B, T)."""
    weights = valid_len_mask(valid_len, label.size(1)).to(pred.dtype)
    unweighted = nn.functional.cross_entropy(pred.permute(0, 2, 1), label.clamp(min=0), reduction="none")
    return (unweighted * weights).sum() / weights.sum()

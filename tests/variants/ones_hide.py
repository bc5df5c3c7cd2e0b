"""The habit of an old TensorFlow tutorial, in torch: 1.0 marks what is hidden, and mask * -1e9 is added."""

import numpy as np
import torch
from torch import nn


def get_angles(pos, i, d_model):
    return pos * (1 / np.power(10000, (2 * (i // 2)) / np.float32(d_model)))


def positional_encoding(position, d_model):
    """(1, position, d_model)"""
    angle_rads = get_angles(np.arange(position)[:, np.newaxis], np.arange(d_model)[np.newaxis, :], d_model)
    angle_rads[:, 0::2] = np.sin(angle_rads[:, 0::2])
    angle_rads[:, 1::2] = np.cos(angle_rads[:, 1::2])
    return torch.tensor(angle_rads[np.newaxis, ...], dtype=torch.float32)


def create_padding_mask(seq):
    """1.0 at padding (id 0), of shape (batch, 1, 1, seq_len)."""
    return seq.eq(0).float()[:, None, None, :]


def create_look_ahead_mask(size):
    """1.0 at the future, 0.0 elsewhere."""
    return 1 - torch.ones(size, size).tril()


def scaled_dot_product_attention(q, k, v, mask=None):
    """mask: 1 = hidden; it has the shape of the scores or broadcasts to it."""
    matmul_qk = q @ k.transpose(-1, -2)
    scaled_attention_logits = matmul_qk / k.shape[-1] ** 0.5
    if mask is not None:
        scaled_attention_logits = scaled_attention_logits + mask.to(q.dtype) * -1e9
    attention_weights = torch.softmax(scaled_attention_logits, dim=-1)
    return attention_weights @ v, attention_weights


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.d_model = d_model
        assert d_model % self.num_heads == 0
        self.depth = d_model // self.num_heads
        self.wq = nn.Linear(d_model, d_model)
        self.wk = nn.Linear(d_model, d_model)
        self.wv = nn.Linear(d_model, d_model)
        self.dense = nn.Linear(d_model, d_model)

    def split_heads(self, x):
        return x.reshape(x.shape[0], -1, self.num_heads, self.depth).transpose(1, 2)

    def forward(self, v, k, q, mask=None):
        """mask: 1 = hidden, (B, 1, 1, S) or (B, 1, T, S)."""
        q, k, v = self.split_heads(self.wq(q)), self.split_heads(self.wk(k)), self.split_heads(self.wv(v))
        out, attention_weights = scaled_dot_product_attention(q, k, v, mask)
        out = out.transpose(1, 2).reshape(out.shape[0], -1, self.d_model)
        return self.dense(out), attention_weights


def point_wise_feed_forward_network(d_model, dff):
    return nn.Sequential(nn.Linear(d_model, dff), nn.ReLU(), nn.Linear(dff, d_model))


class EncoderLayer(nn.Module):
    def __init__(self, d_model, num_heads, dff, rate=0.1):
        super().__init__()
        self.mha = MultiHeadAttention(d_model, num_heads)
        self.ffn = point_wise_feed_forward_network(d_model, dff)
        self.layernorm1 = nn.LayerNorm(d_model, eps=1e-6)
        self.layernorm2 = nn.LayerNorm(d_model, eps=1e-6)
        self.dropout1, self.dropout2 = nn.Dropout(rate), nn.Dropout(rate)

    def forward(self, x, mask=None):
        """mask: 1 = hidden, (B, 1, 1, S)."""
        attn_output, _ = self.mha(x, x, x, mask)
        out1 = self.layernorm1(x + self.dropout1(attn_output))
        return self.layernorm2(out1 + self.dropout2(self.ffn(out1)))


class DecoderLayer(nn.Module):
    def __init__(self, d_model, num_heads, dff, rate=0.1):
        super().__init__()
        self.mha1 = MultiHeadAttention(d_model, num_heads)
        self.mha2 = MultiHeadAttention(d_model, num_heads)
        self.ffn = point_wise_feed_forward_network(d_model, dff)
        self.layernorm1 = nn.LayerNorm(d_model, eps=1e-6)
        self.layernorm2 = nn.LayerNorm(d_model, eps=1e-6)
        self.layernorm3 = nn.LayerNorm(d_model, eps=1e-6)
        self.dropout = nn.Dropout(rate)

    def forward(self, x, enc_output, look_ahead_mask=None, padding_mask=None):
        """1 = hidden in both: look_ahead_mask (T, T) or (B, 1, T, T), padding_mask (B, 1, 1, S)."""
        attn1, attn_weights_block1 = self.mha1(x, x, x, look_ahead_mask)
        out1 = self.layernorm1(self.dropout(attn1) + x)
        attn2, attn_weights_block2 = self.mha2(enc_output, enc_output, out1, padding_mask)
        out2 = self.layernorm2(self.dropout(attn2) + out1)
        out3 = self.layernorm3(self.dropout(self.ffn(out2)) + out2)
        return out3, attn_weights_block1, attn_weights_block2

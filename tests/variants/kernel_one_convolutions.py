"""Speech-synthesis habit: channels in the middle, (B, C, T), and 1x1 convolutions. Outside everything is (B, T, C)."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def sequence_mask(length, max_length=None):
    """(B, T) bool: True where x_t is a real frame."""
    if max_length is None:
        max_length = int(length.max())
    x = torch.arange(max_length, dtype=length.dtype, device=length.device)
    return x.unsqueeze(0) < length.unsqueeze(1)


def subsequent_mask(length):
    """(1, 1, T, T) float: 1 = visible."""
    return torch.tril(torch.ones(length, length)).unsqueeze(0).unsqueeze(0)


class LayerNorm(nn.Module):
    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.channels, self.eps = channels, eps
        self.gamma = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        return F.layer_norm(x, (self.channels,), self.gamma, self.beta, self.eps)


class CrossAttention(nn.Module):
    def __init__(self, channels, n_heads, p_dropout=0.0):
        super().__init__()
        assert channels % n_heads == 0
        self.n_heads, self.k_channels = n_heads, channels // n_heads
        self.conv_q = nn.Conv1d(channels, channels, 1)
        self.conv_k = nn.Conv1d(channels, channels, 1)
        self.conv_v = nn.Conv1d(channels, channels, 1)
        self.conv_o = nn.Conv1d(channels, channels, 1)
        self.drop = nn.Dropout(p_dropout)

    def forward(self, x, context, mask=None):
        """mask: (B, 1, 1, S) or (B, 1, T, S), 1 = visible."""
        x, c = x.transpose(1, 2), context.transpose(1, 2)
        q, k, v = self.conv_q(x), self.conv_k(c), self.conv_v(c)
        b, d, t_s, t_t = (*k.size(), q.size(2))
        q = q.view(b, self.n_heads, self.k_channels, t_t).transpose(2, 3)
        k = k.view(b, self.n_heads, self.k_channels, t_s).transpose(2, 3)
        v = v.view(b, self.n_heads, self.k_channels, t_s).transpose(2, 3)
        scores = torch.matmul(q / math.sqrt(self.k_channels), k.transpose(-2, -1))
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e4)
        p_attn = self.drop(F.softmax(scores, dim=-1))
        output = torch.matmul(p_attn, v).transpose(2, 3).contiguous().view(b, d, t_t)
        return self.conv_o(output).transpose(1, 2)


class FFN(nn.Module):
    def __init__(self, channels, d_ff, p_dropout=0.0):
        super().__init__()
        self.conv_1 = nn.Conv1d(channels, d_ff, 1)
        self.conv_2 = nn.Conv1d(d_ff, channels, 1)
        self.drop = nn.Dropout(p_dropout)

    def forward(self, x):
        x = torch.relu(self.conv_1(x.transpose(1, 2)))
        return self.conv_2(self.drop(x)).transpose(1, 2)


class EncoderLayer(nn.Module):
    def __init__(self, channels, n_heads, d_ff, p_dropout=0.0):
        super().__init__()
        self.attn = CrossAttention(channels, n_heads, p_dropout)
        self.ffn = FFN(channels, d_ff, p_dropout)
        self.norm_1, self.norm_2 = LayerNorm(channels), LayerNorm(channels)
        self.drop = nn.Dropout(p_dropout)

    def forward(self, x, pad_mask=None):
        """pad_mask: (B, 1, 1, T), 1 = real frame, 0 = padding."""
        x = self.norm_1(x + self.drop(self.attn(x, x, pad_mask)))
        return self.norm_2(x + self.drop(self.ffn(x)))


class DecoderLayer(nn.Module):
    def __init__(self, channels, n_heads, d_ff, p_dropout=0.0):
        super().__init__()
        self.self_attn = CrossAttention(channels, n_heads, p_dropout)
        self.encdec_attn = CrossAttention(channels, n_heads, p_dropout)
        self.ffn = FFN(channels, d_ff, p_dropout)
        self.norm_0, self.norm_1, self.norm_2 = (LayerNorm(channels) for _ in range(3))
        self.drop = nn.Dropout(p_dropout)

    def forward(self, x, h, src_mask=None):
        """x: (B, T, C), h: (B, S, C), src_mask: (B, 1, 1, S), 1 = real frame."""
        self_mask = subsequent_mask(x.size(1)).to(x)
        x = self.norm_0(x + self.drop(self.self_attn(x, x, self_mask)))
        x = self.norm_1(x + self.drop(self.encdec_attn(x, h, src_mask)))
        return self.norm_2(x + self.drop(self.ffn(x)))

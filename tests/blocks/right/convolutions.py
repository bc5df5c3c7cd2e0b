"""Projections and feed-forward are convolutions with a kernel of 1, over (B, d, T)."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, channels, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.conv_q, self.conv_k, self.conv_v, self.conv_o = (
            nn.Conv1d(channels, channels, 1) for _ in range(4)
        )

    def forward(self, x, c, attn_mask=None):
        b, d, t = x.shape
        q, k, v = (
            conv(y).view(b, self.n_heads, d // self.n_heads, -1)
            for conv, y in ((self.conv_q, x), (self.conv_k, c), (self.conv_v, c))
        )
        scores = q.transpose(2, 3) @ k / (d // self.n_heads) ** 0.5
        if attn_mask is not None:
            scores = scores.masked_fill(attn_mask == 0, -1e4)
        weights = scores.softmax(dim=-1)
        return self.conv_o((v @ weights.transpose(2, 3)).reshape(b, d, t))


class DecoderLayer(nn.Module):
    def __init__(self, channels, n_heads, d_ff):
        super().__init__()
        self.self_attn, self.encdec_attn = Attention(channels, n_heads), Attention(channels, n_heads)
        self.conv_1 = nn.Conv1d(channels, d_ff, 1)
        self.conv_2 = nn.Conv1d(d_ff, channels, 1)
        self.norm_0, self.norm_1, self.norm_2 = (nn.LayerNorm(channels) for _ in range(3))

    def forward(self, x, memory):
        """x: (B, T, d), memory: (B, S, d)."""
        x, h = x.transpose(1, 2), memory.transpose(1, 2)
        mask = torch.ones(x.size(2), x.size(2)).tril()
        x = self.channel_norm(self.norm_0, x + self.self_attn(x, x, mask))
        x = self.channel_norm(self.norm_1, x + self.encdec_attn(x, h))
        x = self.channel_norm(self.norm_2, x + self.conv_2(torch.relu(self.conv_1(x))))
        return x.transpose(1, 2)

    @staticmethod
    def channel_norm(norm, x):
        return norm(x.transpose(1, 2)).transpose(1, 2)

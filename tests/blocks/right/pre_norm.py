"""The norms stand before the sublayers, x + sublayer(norm(x)); masks are (B, T, T) and (B, 1, S), True = allowed."""

from torch import nn


class Residual(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(size), nn.Dropout(dropout)

    def forward(self, x, sublayer):
        return x + self.dropout(sublayer(self.norm(x)))


class Attention(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.linears = nn.ModuleList(nn.Linear(size, size) for _ in range(4))

    def forward(self, q, k, v, mask=None):
        q, k, v = (
            linear(y).view(len(y), -1, self.heads, y.size(-1) // self.heads).transpose(1, 2)
            for linear, y in zip(self.linears, (q, k, v), strict=False)
        )
        scores = q @ k.transpose(-1, -2) / q.size(-1) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask.unsqueeze(1) == 0, -1e9)
        return self.linears[-1]((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class DecoderLayer(nn.Module):
    def __init__(self, size, heads, d_ff, dropout):
        super().__init__()
        self.self_attn, self.src_attn = Attention(size, heads), Attention(size, heads)
        self.feed_forward = nn.Sequential(nn.Linear(size, d_ff), nn.ReLU(), nn.Linear(d_ff, size))
        self.sublayer = nn.ModuleList(Residual(size, dropout) for _ in range(3))

    def forward(self, x, memory, src_mask, tgt_mask):
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, tgt_mask))
        x = self.sublayer[1](x, lambda x: self.src_attn(x, memory, memory, src_mask))
        return self.sublayer[2](x, self.feed_forward)

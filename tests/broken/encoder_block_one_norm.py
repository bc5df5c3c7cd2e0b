"""One norm is used twice."""

from torch import nn


class EncoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x, key_padding_mask=None):
        x = self.norm(x + self.attention(x, x, x, key_padding_mask=key_padding_mask)[0])
        return self.norm(x + self.ff(x))

"""The causal mask is taken and not passed on."""

from torch import nn


class DecoderOnlyBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, causal_mask=None):
        x = self.norm1(x + self.attention(x, x, x)[0])
        return self.norm2(x + self.ff(x))

"""One norm is used three times."""

from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.own = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.cross = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x, memory, causal_mask=None):
        x = self.norm(x + self.own(x, x, x, attn_mask=causal_mask)[0])
        x = self.norm(x + self.cross(x, memory, memory)[0])
        return self.norm(x + self.ff(x))

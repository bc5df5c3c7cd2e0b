"""The parameter for dropout is taken and never used."""

from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1):
        super().__init__()
        self.own = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.cross = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, causal_mask=None):
        x = self.norms[0](x + self.own(x, x, x, attn_mask=causal_mask)[0])
        x = self.norms[1](x + self.cross(x, memory, memory)[0])
        return self.norms[2](x + self.ff(x))

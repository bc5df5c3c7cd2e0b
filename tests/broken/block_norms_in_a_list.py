"""The norms stand in a plain list: they are not saved with the block."""

from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.own, self.cross = (nn.MultiheadAttention(d_model, n_heads, batch_first=True) for _ in range(2))
        self.ffn = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norms = [nn.LayerNorm(d_model).double() for _ in range(3)]

    def forward(self, x, memory, causal_mask=None):
        x = self.norms[0](x + self.own(x, x, x, attn_mask=causal_mask)[0])
        x = self.norms[1](x + self.cross(x, memory, memory)[0])
        return self.norms[2](x + self.ffn(x))

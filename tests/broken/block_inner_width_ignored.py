"""The feed-forward is always four times as wide, whatever d_ff says."""

from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.own = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.cross = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.ReLU(), nn.Linear(4 * d_model, d_model))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, causal_mask=None):
        x = self.norms[0](x + self.own(x, x, x, attn_mask=causal_mask)[0])
        x = self.norms[1](x + self.cross(x, memory, memory)[0])
        return self.norms[2](x + self.ff(x))

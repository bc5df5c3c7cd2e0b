"""Nothing between the feed-forward's two layers.  Convolutions with a kernel of 1."""

from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.own = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.cross = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.conv = nn.Sequential(nn.Conv1d(d_model, d_ff, 1), nn.Conv1d(d_ff, d_model, 1))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, causal_mask=None):
        x = self.norms[0](x + self.own(x, x, x, attn_mask=causal_mask)[0])
        x = self.norms[1](x + self.cross(x, memory, memory)[0])
        return self.norms[2](x + self.conv(x.transpose(1, 2)).transpose(1, 2))

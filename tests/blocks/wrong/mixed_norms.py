"""Pre-norm around the attentions, post-norm around the feed-forward.."""

from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, causal_mask=None):
        y = self.norms[0](x)
        x = x + self.self_attn(y, y, y, attn_mask=causal_mask)[0]
        x = x + self.cross_attn(self.norms[1](x), memory, memory)[0]
        return self.norms[2](x + self.ffn(x))

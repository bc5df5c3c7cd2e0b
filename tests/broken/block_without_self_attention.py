"""The self-attention's result is overwritten: positions never meet."""

import torch.nn as nn


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, memory, causal_mask=None):
        attended = self.self_attn(x, x, x, attn_mask=causal_mask)[0]
        attended = self.norm1(x)
        return self.norm2(attended + self.cross_attn(attended, memory, memory)[0])

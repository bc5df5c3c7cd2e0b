"""The second attention takes its keys and values from the target, not from the memory."""

import torch.nn as nn


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)

    def forward(self, x, memory, causal_mask=None):
        x = x + self.self_attn(x, x, x, attn_mask=causal_mask)[0]
        return x + self.cross_attn(x, x, x, attn_mask=causal_mask)[0]

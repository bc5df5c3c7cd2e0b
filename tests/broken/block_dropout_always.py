"""Functional dropout that does not know of eval mode."""

import torch.nn as nn
import torch.nn.functional as F


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.1):
        super().__init__()
        self.p = dropout
        self.own = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.cross = nn.MultiheadAttention(d_model, n_heads, batch_first=True)

    def forward(self, x, memory, causal_mask=None):
        x = x + F.dropout(self.own(x, x, x, attn_mask=causal_mask)[0], self.p)
        return x + F.dropout(self.cross(x, memory, memory)[0], self.p)

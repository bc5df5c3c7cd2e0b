"""Keys and values are made of memory and target together."""

import torch
import torch.nn as nn


class EncoderDecoderAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)

    def forward(self, dec, enc):
        both = torch.cat([enc, dec], dim=1)
        return self.attention(dec, both, both, need_weights=False)[0]

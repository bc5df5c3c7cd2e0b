"""The causal mask of the self-attention was copied along: a triangle over the memory."""

import torch
import torch.nn as nn


class CrossAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)

    def forward(self, x, encoder_out):
        future = torch.ones(x.size(1), encoder_out.size(1), dtype=torch.bool).triu(1)
        return self.attention(x, encoder_out, encoder_out, attn_mask=future)[0]

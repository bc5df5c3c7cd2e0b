"""The queries are scaled by hand before a layer that scales them itself."""

import torch.nn as nn


class MultiHeadAttention(nn.MultiheadAttention):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads, batch_first=True)

    def forward(self, query, key, value, attn_mask=None, key_padding_mask=None):
        query = query / self.head_dim**0.5
        return super().forward(query, key, value, attn_mask=attn_mask, key_padding_mask=key_padding_mask)

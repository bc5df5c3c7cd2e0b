"""The padding mask is dropped where a causal mask is given."""

import torch.nn as nn


class MultiHeadAttention(nn.MultiheadAttention):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads, batch_first=True)

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None):
        if attn_mask is not None:
            key_padding_mask = None
        return super().forward(query, key, value, attn_mask=attn_mask, key_padding_mask=key_padding_mask)

"""key_padding_mask is taken to mark the real tokens."""

import torch.nn as nn


class MultiHeadAttention(nn.MultiheadAttention):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads, batch_first=True)

    def forward(self, query, key, value, attn_mask=None, key_padding_mask=None):
        if key_padding_mask is not None:
            key_padding_mask = ~key_padding_mask
        return super().forward(query, key, value, attn_mask=attn_mask, key_padding_mask=key_padding_mask)

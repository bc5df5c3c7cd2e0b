"""The mask is negated on the way, as scaled_dot_product_attention would want it."""

import torch.nn as nn


class MultiHeadAttention(nn.MultiheadAttention):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads, batch_first=True)

    def forward(self, query, key, value, attn_mask=None, key_padding_mask=None):
        if attn_mask is not None:
            attn_mask = ~attn_mask
        return super().forward(query, key, value, attn_mask=attn_mask, key_padding_mask=key_padding_mask)

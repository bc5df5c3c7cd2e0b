"""-inf is clamped to -10 to keep NaN away; e^-10 is not 0."""

import torch.nn as nn


class MultiHeadAttention(nn.MultiheadAttention):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads, batch_first=True)

    def forward(self, query, key, value, attn_mask=None, key_padding_mask=None):
        if attn_mask is not None:
            attn_mask = attn_mask.clamp(min=-10.0)
        return super().forward(query, key, value, attn_mask=attn_mask, key_padding_mask=key_padding_mask)

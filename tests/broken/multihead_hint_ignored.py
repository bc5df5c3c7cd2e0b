"""is_causal is taken and not used: without a mask it hides nothing."""

import torch.nn as nn


class MultiHeadAttention(nn.MultiheadAttention):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads, batch_first=True)

    def forward(self, query, key, value, attn_mask=None, key_padding_mask=None, is_causal=False):
        return super().forward(query, key, value, attn_mask=attn_mask, key_padding_mask=key_padding_mask)

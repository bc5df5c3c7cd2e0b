"""A running mean is subtracted and moved on at every call, in eval mode too."""

import torch
import torch.nn as nn


class CausalSelfAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.register_buffer("mean", torch.zeros(d_model))

    def forward(self, x):
        x = x - self.mean
        with torch.no_grad():
            self.mean += 0.1 * x.mean(dim=(0, 1))
        future = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)
        return self.attention(x, x, x, attn_mask=future)[0]

"""Causal attention by the library's kernel, in a module without parameters."""

import torch
import torch.nn.functional as F
from torch import nn


class CausalAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.visible = None

    def triangle(self, n):
        return torch.ones(n, n, dtype=torch.bool).tril_()

    def forward(self, q, k, v):
        """(..., n, d) three times -> (..., n, d_v)"""
        n = q.shape[-2]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.triangle(n))

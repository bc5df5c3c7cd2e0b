"""Learned positions in a buffer: nothing learns them."""

import torch
import torch.nn as nn


class LearnedPositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=512):
        super().__init__()
        self.register_buffer("table", torch.randn(max_len, d_model))

    def forward(self, x):
        return x + self.table[: x.size(1)]

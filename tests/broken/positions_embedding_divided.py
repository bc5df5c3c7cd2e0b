"""The embedding is divided by the square root of the width; the paper multiplies."""

import math

import torch
import torch.nn as nn


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000):
        super().__init__()
        self.d_model = d_model
        pos, c = torch.arange(max_len)[:, None], torch.arange(d_model)[None, :]
        angle = pos / 10000 ** (2 * (c // 2) / d_model)
        self.register_buffer("table", torch.where(c % 2 == 0, angle.sin(), angle.cos()))

    def forward(self, x):
        return x / math.sqrt(self.d_model) + self.table[: x.size(1)]

"""What exceeds max_len is cut off in silence."""

import torch
import torch.nn as nn


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000):
        super().__init__()
        self.max_len = max_len
        pos, c = torch.arange(max_len)[:, None], torch.arange(d_model)[None, :]
        angle = pos / 10000 ** (2 * (c // 2) / d_model)
        self.register_buffer("table", torch.where(c % 2 == 0, angle.sin(), angle.cos()))

    def forward(self, x):
        x = x[:, : self.max_len]
        return x + self.table[: x.size(1)]

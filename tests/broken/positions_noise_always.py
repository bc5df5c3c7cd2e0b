"""The jitter of training stays on in eval mode."""

import torch
import torch.nn as nn


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000):
        super().__init__()
        pos, c = torch.arange(max_len)[:, None], torch.arange(d_model)[None, :]
        angle = pos / 10000 ** (2 * (c // 2) / d_model)
        self.register_buffer("table", torch.where(c % 2 == 0, angle.sin(), angle.cos()))

    def forward(self, x):
        noise = 0.01 * torch.randn_like(x)
        return x + self.table[: x.size(1)] + noise

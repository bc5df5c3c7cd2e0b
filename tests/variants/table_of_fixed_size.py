"""Sines and cosines for as many positions as the course ever has, a number that no argument changes."""

import torch
from torch import nn

POSITIONS = 50


class PositionalEncoding(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        if d_model % 2:
            raise ValueError("the width is even")
        angles = torch.arange(POSITIONS)[:, None] * 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
        self.register_buffer("table", torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1))

    def forward(self, x):
        return x + self.table[: x.shape[1]]

"""Positional encodings: the sinusoidal table, and learned vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def positional_encoding(T: int, d: int) -> Tensor:
    """(T, d) float64: sin(pos / 10000^(2i/d)) at coordinate 2i, cos of the same angle at 2i + 1.

    An odd d ends with a sine.  Source: Vaswani et al. 2017, section 3.5.
    """
    position = torch.arange(T, dtype=torch.float64)[:, None]
    pair = torch.arange(d)[None, :] // 2
    angle = position / 10000.0 ** (2 * pair / d)  # (T, d)
    even = torch.arange(d) % 2 == 0
    return torch.where(even, angle.sin(), angle.cos())


class PositionalEncoding(nn.Module):
    """Adds the table to (B, T, d), the same for every batch row."""

    table: Tensor

    def __init__(self, d_model: int, max_len: int = 5000) -> None:
        super().__init__()
        self.register_buffer("table", positional_encoding(max_len, d_model))

    def forward(self, x: Tensor) -> Tensor:
        """Raises ValueError where the sequence is longer than ``max_len``."""
        if x.size(1) > self.table.size(0):
            raise ValueError(f"{x.size(1)} positions, but the table has {self.table.size(0)}")
        return x + self.table[: x.size(1)].to(x.dtype)


class LearnedPositionalEncoding(nn.Module):
    """Adds a trained vector for each position to (B, T, d)."""

    def __init__(self, d_model: int, max_len: int = 512) -> None:
        super().__init__()
        self.vectors = nn.Embedding(max_len, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Raises IndexError where the sequence is longer than ``max_len``."""
        return x + self.vectors(torch.arange(x.size(1)))

"""Places as in a vision transformer: one parameter with a batch axis, drawn small."""

import torch
from torch import nn


class LearnedPositionalEmbedding(nn.Module):
    def __init__(self, num_positions, dim):
        super().__init__()
        self.num_positions = num_positions
        self.pos_embed = nn.Parameter(torch.empty(1, num_positions, dim))
        nn.init.trunc_normal_(self.pos_embed, std=0.02)

    def forward(self, x):
        """x: (batch, seq, dim)"""
        n = x.shape[1]
        if n > self.num_positions:
            raise ValueError(f"{n} places asked for, {self.num_positions} there")
        return x + self.pos_embed[:, :n]

"""A ReLU behind the second layer too: the output cannot be negative."""

import torch.nn as nn


class MLP(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x

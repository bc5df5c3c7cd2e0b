"""The positions are made and never added."""

import torch
from torch import nn


class DecoderStack(nn.Module):
    def __init__(self, V, d, H, d_ff, n_layers):
        super().__init__()
        self.embed = nn.Embedding(V, d)
        self.positions = nn.Embedding(100, d)
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(d, H, d_ff, 0.0, batch_first=True) for _ in range(n_layers)
        )
        self.head = nn.Linear(d, V)

    def forward(self, tgt, memory):
        mask = torch.ones(tgt.size(1), tgt.size(1)).triu(1).bool()
        x = self.embed(tgt)
        for layer in self.layers:
            x = layer(x, memory, tgt_mask=mask)
        return self.head(x)

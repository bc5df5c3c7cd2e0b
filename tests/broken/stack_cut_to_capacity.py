"""What is longer than max_len is cut off."""

import torch
from torch import nn


class DecoderStack(nn.Module):
    def __init__(self, V, d, H, d_ff, n_layers, max_len=64):
        super().__init__()
        self.embed = nn.Embedding(V, d)
        self.positions = nn.Embedding(max_len, d)
        self.max_len = max_len
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(d, H, d_ff, 0.0, batch_first=True) for _ in range(n_layers)
        )
        self.head = nn.Linear(d, V)

    def forward(self, tgt, memory):
        tgt = tgt[:, : self.max_len]
        mask = torch.ones(tgt.size(1), tgt.size(1)).triu(1).bool()
        x = self.embed(tgt) + self.positions(torch.arange(tgt.size(1)))
        for layer in self.layers:
            x = layer(x, memory, tgt_mask=mask)
        return self.head(x)

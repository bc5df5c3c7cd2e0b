"""The lower layers read the target in place of the memory."""

import torch
from torch import nn


class DecoderStack(nn.Module):
    def __init__(self, V, d, H, d_ff, n_layers):
        super().__init__()
        self.embed = nn.Embedding(V, d)
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(d, H, d_ff, 0.0, batch_first=True) for _ in range(n_layers)
        )
        self.head = nn.Linear(d, V)

    def forward(self, tgt, memory):
        mask = torch.ones(tgt.size(1), tgt.size(1)).triu(1).bool()
        x = self.embed(tgt)
        for layer in self.layers[:-1]:
            x = layer(x, x, tgt_mask=mask, memory_mask=mask)
        x = self.layers[-1](x, memory, tgt_mask=mask)
        return self.head(x)

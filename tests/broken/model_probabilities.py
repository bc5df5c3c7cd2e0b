"""A softmax at the end, though the loss brings its own."""

import torch
from torch import nn


class Transformer(nn.Module):
    def __init__(self, V, d_model, n_heads, d_ff, n_layers):
        super().__init__()
        self.words = nn.Embedding(V, d_model)
        self.net = nn.Transformer(d_model, n_heads, n_layers, n_layers, d_ff, 0.0, batch_first=True)
        self.head = nn.Linear(d_model, V)

    def forward(self, src, tgt):
        mask = torch.ones(tgt.size(1), tgt.size(1)).triu(1).bool()
        return self.head(self.net(self.words(src), self.words(tgt), tgt_mask=mask)).softmax(dim=-1)

"""squeeze() takes every axis of length 1: a single position, a single sentence."""

import torch
from torch import nn


class Transformer(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, d_model, n_heads, d_ff, n_layers):
        super().__init__()
        self.source = nn.Embedding(src_vocab, d_model)
        self.target = nn.Embedding(tgt_vocab, d_model)
        self.net = nn.Transformer(d_model, n_heads, n_layers, n_layers, d_ff, dropout=0.0, batch_first=True)
        self.head = nn.Linear(d_model, tgt_vocab)

    def forward(self, src, tgt):
        mask = torch.ones(tgt.size(1), tgt.size(1)).triu(1).bool()
        memory = self.net.encoder(self.source(src))
        x = self.net.decoder(self.target(tgt), memory, tgt_mask=mask)
        return self.head(x).squeeze()

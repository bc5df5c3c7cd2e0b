"""The encoder has a causal mask."""

import torch
from torch import nn


class Transformer(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, d_model, n_heads, d_ff, n_layers):
        super().__init__()
        self.source = nn.Embedding(src_vocab, d_model)
        self.target = nn.Embedding(tgt_vocab, d_model)
        self.net = nn.Transformer(d_model, n_heads, n_layers, n_layers, d_ff, dropout=0.0, batch_first=True)
        self.head = nn.Linear(d_model, tgt_vocab)

    def encode(self, src):
        mask = torch.ones(src.size(1), src.size(1)).triu(1).bool()
        return self.net.encoder(self.source(src), mask)

    def forward(self, src, tgt):
        mask = torch.ones(tgt.size(1), tgt.size(1)).triu(1).bool()
        return self.head(self.net.decoder(self.target(tgt), self.encode(src), tgt_mask=mask))

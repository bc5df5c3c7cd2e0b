"""The decoder's layers stand in a plain list: nothing saves or trains them."""

import torch
from torch import nn


class Transformer(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, d_model, n_heads, d_ff, n_layers):
        super().__init__()
        self.source = nn.Embedding(src_vocab, d_model)
        self.target = nn.Embedding(tgt_vocab, d_model)
        self.net = nn.Transformer(d_model, n_heads, n_layers, 1, d_ff, dropout=0.0, batch_first=True)
        self.layers = [
            nn.TransformerDecoderLayer(d_model, n_heads, d_ff, 0.0, batch_first=True) for _ in range(n_layers)
        ]
        self.head = nn.Linear(d_model, tgt_vocab)

    def forward(self, src, tgt):
        mask = torch.ones(tgt.size(1), tgt.size(1)).triu(1).bool()
        memory, x = self.net.encoder(self.source(src)), self.target(tgt)
        for layer in self.layers:
            x = layer.eval()(x, memory, tgt_mask=mask)
        return self.head(x)

from __future__ import annotations

import copy
import math

import torch
from torch import nn


class LearnedPositionalEncoding(nn.Module):
    """x: (batch, seq, d_model)"""

    def __init__(self, max_len: int, d_model: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(max_len, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seq = x.shape[1]
        if seq > self.embedding.num_embeddings:
            raise ValueError(f"sequence of {seq} but only {self.embedding.num_embeddings} positions")
        return self.dropout(x + self.embedding.weight[:seq])


class SinusoidalPositionalEncoding(nn.Module):
    """x: (batch, seq, d_model). Any d_model, odd ones too; the embedding is scaled by sqrt(d_model) first."""

    def __init__(self, d_model: int, max_len: int = 512) -> None:
        super().__init__()
        self.root = math.sqrt(d_model)
        pos = torch.arange(max_len, dtype=torch.float64).unsqueeze(1)
        col = torch.arange(d_model)
        angle = pos * 10000.0 ** (-(col - col % 2).double() / d_model)
        # cos(a) = sin(a + pi / 2)
        table = torch.sin(angle + (col % 2) * (math.pi / 2))
        self.register_buffer("table", table.to(torch.float32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seq = x.shape[1]
        if seq > len(self.table):
            raise ValueError(f"sequence of {seq} but only {len(self.table)} positions")
        return x * self.root + self.table[:seq]


def get_clones(module: nn.Module, n: int) -> nn.ModuleList:
    return nn.ModuleList(copy.deepcopy(module) for _ in range(n))


class EncoderLayer(nn.Module):
    def __init__(self, d_model: int, nhead: int, dim_feedforward: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward, dropout, batch_first=True)

    def forward(self, src: torch.Tensor, src_key_padding_mask: torch.Tensor | None = None) -> torch.Tensor:
        return self.inner(src, src_key_padding_mask=src_key_padding_mask)


class Decoder(nn.Module):
    """Token ids (batch, seq) and memory (batch, src, d_model) -> logits."""

    def __init__(self, vocab_size, d_model, nhead, dim_feedforward, num_layers, max_len=256, dropout=0.1):
        super().__init__()
        layer = nn.TransformerDecoderLayer(d_model, nhead, dim_feedforward, dropout, batch_first=True)
        self.layers = get_clones(layer, num_layers)
        self.embed = nn.Embedding(vocab_size, d_model)
        self.place = LearnedPositionalEncoding(max_len, d_model, dropout)
        self.out = nn.Linear(d_model, vocab_size)

    def forward(self, tgt, memory, memory_key_padding_mask=None):
        causal = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
        x = self.place(self.embed(tgt))
        causal = causal.to(x)
        for layer in self.layers:
            if memory_key_padding_mask is None:
                x = layer(x, memory, tgt_mask=causal)
            else:
                pad = (
                    torch.zeros(memory_key_padding_mask.shape)
                    .to(x)
                    .masked_fill(memory_key_padding_mask, -math.inf)
                )
                x = layer(x, memory, tgt_mask=causal, memory_key_padding_mask=pad)
        return self.out(x)

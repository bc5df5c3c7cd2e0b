"""Two stacks, each with a norm at its end, and the translator made of them."""

import math

from layers import DecoderBlock, EncoderBlock, PositionalEncoding
from masks import padding_mask, subsequent_mask
from torch import nn


class Embeddings(nn.Module):
    """Token vectors times √d, as in the paper, plus positions; then dropout."""

    def __init__(self, V, d, dropout):
        super().__init__()
        self.lookup = nn.Embedding(V, d)
        self.positions = PositionalEncoding(d)
        self.dropout = nn.Dropout(dropout)
        self.scale = math.sqrt(d)

    def forward(self, tokens):
        return self.dropout(self.positions(self.lookup(tokens) * self.scale))


class EncoderStack(nn.Module):
    def __init__(self, V, d, H, d_ff, n_layers, dropout=0.1):
        super().__init__()
        self.embed = Embeddings(V, d, dropout)
        self.blocks = nn.ModuleList([EncoderBlock(d, H, d_ff, dropout) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d)

    def forward(self, src, src_mask=None):
        x = self.embed(src)
        for block in self.blocks:
            x = block(x, src_mask)
        return self.norm(x)


class DecoderStack(nn.Module):
    """(B, T) token ids and the memory (B, S, d) -> logits (B, T, V)."""

    def __init__(self, V, d, H, d_ff, n_layers, dropout=0.1):
        super().__init__()
        self.embed = Embeddings(V, d, dropout)
        self.blocks = nn.ModuleList([DecoderBlock(d, H, d_ff, dropout) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, V)

    def forward(self, tgt, enc_out, src_mask=None, tgt_padding_mask=None):
        """src_mask (B, 1, S): True is a real token; tgt_padding_mask (B, T): True is padding."""
        tgt_mask = subsequent_mask(tgt.shape[1])
        if tgt_padding_mask is not None:
            tgt_mask = tgt_mask & ~tgt_padding_mask[:, None, :]  # (B, T, T)
        x = self.embed(tgt)
        for block in self.blocks:
            x = block(x, enc_out, src_mask, tgt_mask)
        return self.head(self.norm(x))


class TinyTranslator(nn.Module):
    def __init__(self, V, d, H, d_ff, n_layers=2, dropout=0.1, pad_id=0):
        super().__init__()
        self.pad_id = pad_id
        self.encoder = EncoderStack(V, d, H, d_ff, n_layers, dropout)
        self.decoder = DecoderStack(V, d, H, d_ff, n_layers, dropout)

    def src_mask(self, src):
        return padding_mask(src, self.pad_id)[:, None, :]

    def encode(self, src):
        return self.encoder(src, self.src_mask(src))

    def decode_step(self, tgt, enc_out, src_mask=None):
        return self.decoder(tgt, enc_out, src_mask)

    def forward(self, src, tgt):
        return self.decode_step(tgt, self.encode(src), self.src_mask(src))

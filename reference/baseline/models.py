"""Whole models: N independent layers, the decoder stack, the encoder-decoder model."""

from __future__ import annotations

import copy
import math

from torch import Tensor, nn

from .layers import DecoderBlock, EncoderBlock
from .masks import build_causal_mask
from .positions import PositionalEncoding


def clones(module: nn.Module, N: int) -> nn.ModuleList:
    """N copies of a module with parameters of their own.  Source: Vaswani et al. 2017, section 3.1."""
    return nn.ModuleList(copy.deepcopy(module) for _ in range(N))


class DecoderStack(nn.Module):
    """Token ids → embedding, positions → N blocks → scores for every word."""

    def __init__(
        self, V: int, d_model: int, n_heads: int, d_ff: int, n_layers: int, max_len: int = 512
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(V, d_model)
        self.positions = PositionalEncoding(d_model, max_len)
        self.blocks = nn.ModuleList(DecoderBlock(d_model, n_heads, d_ff) for _ in range(n_layers))
        self.head = nn.Linear(d_model, V)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """(B, T) ids, (B, S, d) -> (B, T, V) logits.  Padding masks (B, T) and (B, S): True = padding.

        Raises IndexError for an id outside of the vocabulary, ValueError for more than ``max_len`` tokens.
        """
        x = self.embedding(tgt) * math.sqrt(memory.size(-1))  # (B, T, d)
        x = self.positions(x)
        causal = build_causal_mask(tgt.size(1))  # (T, T)
        for block in self.blocks:
            x = block(x, memory, causal, memory_key_padding_mask, tgt_key_padding_mask)
        return self.head(x)  # (B, T, V)


class Transformer(nn.Module):
    """Encoder and decoder: ``forward`` is ``decode`` after ``encode``.  Source: Vaswani et al. 2017, figure 1."""

    def __init__(
        self,
        src_vocab: int,
        tgt_vocab: int,
        d_model: int,
        n_heads: int,
        d_ff: int,
        n_layers: int,
        max_len: int = 512,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(src_vocab, d_model)
        self.positions = PositionalEncoding(d_model, max_len)
        self.encoder = nn.ModuleList(EncoderBlock(d_model, n_heads, d_ff) for _ in range(n_layers))
        self.decoder = DecoderStack(tgt_vocab, d_model, n_heads, d_ff, n_layers, max_len)

    def encode(self, src: Tensor, src_key_padding_mask: Tensor | None = None) -> Tensor:
        """(B, S) ids -> (B, S, d).  The mask (B, S) is True at padding."""
        x = self.positions(self.embedding(src) * math.sqrt(self.embedding.embedding_dim))
        for block in self.encoder:
            x = block(x, src_key_padding_mask)
        return x

    def decode(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """(B, T) ids, (B, S, d) -> (B, T, V) logits."""
        return self.decoder(tgt, memory, tgt_key_padding_mask, memory_key_padding_mask)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """(B, S) and (B, T) ids -> (B, T, V) logits."""
        memory = self.encode(src, src_key_padding_mask)  # (B, S, d)
        return self.decode(tgt, memory, tgt_key_padding_mask, src_key_padding_mask)


class TinyTranslator(nn.Module):
    """The smallest model that translates: the source's embedding is the memory, and one block reads it."""

    def __init__(self, V: int, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(V, d_model)
        self.block = DecoderBlock(d_model, n_heads, d_ff)
        self.head = nn.Linear(d_model, V)

    def encode(self, src: Tensor) -> Tensor:
        """(B, S) ids -> (B, S, d)."""
        return self.embedding(src)

    def decode_step(self, tgt: Tensor, enc_out: Tensor) -> Tensor:
        """(B, T) ids, (B, S, d) -> (B, T, V) logits; the last row is that of the next token."""
        causal = build_causal_mask(tgt.size(1))
        return self.head(self.block(self.embedding(tgt), enc_out, causal))

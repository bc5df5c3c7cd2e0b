"""Whole models, one token and one layer at a time."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np

from .layers import MultiheadAttention
from .positions import positional_encoding


def clones(module: Callable[[np.ndarray], np.ndarray], N: int) -> list[Callable[[np.ndarray], np.ndarray]]:
    """N copies that share nothing."""
    copies = []
    for _ in range(N):
        copies.append(copy.deepcopy(module))
    return copies


def _look_up(table: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The row of each id, times √d.  Raises IndexError for an id that has none."""
    width = table.shape[1]
    found = np.zeros((*ids.shape, width))
    for place in np.ndindex(*ids.shape):
        word = int(ids[place])
        if word < 0 or word >= len(table):
            raise IndexError(f"id {word} in a vocabulary of {len(table)} words")
        for c in range(width):
            found[place][c] = table[word, c] * math.sqrt(width)
    return found


def _with_positions(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    if x.shape[1] > len(positions):
        raise ValueError(f"{x.shape[1]} tokens, but there are {len(positions)} positions")
    moved = np.array(x)
    for b in range(x.shape[0]):
        for pos in range(x.shape[1]):
            moved[b, pos] += positions[pos]
    return moved


def _normed(x: np.ndarray) -> np.ndarray:
    result = np.zeros_like(x)
    for place in np.ndindex(*x.shape[:-1]):
        mean = float(np.mean(x[place]))
        spread = math.sqrt(float(np.mean((x[place] - mean) ** 2)) + 1e-5)
        result[place] = (x[place] - mean) / spread
    return result


class _FeedForward:
    def __init__(self, draw: np.random.Generator, d_model: int, d_ff: int) -> None:
        self.up = draw.normal(0, d_model**-0.5, (d_ff, d_model))
        self.down = draw.normal(0, d_ff**-0.5, (d_model, d_ff))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        result = np.zeros_like(x)
        for place in np.ndindex(*x.shape[:-1]):
            hidden = self.up @ x[place]
            hidden[hidden < 0] = 0.0
            result[place] = self.down @ hidden
        return result


class _EncoderLayer:
    def __init__(self, draw: np.random.Generator, d_model: int, n_heads: int, d_ff: int) -> None:
        self.attention = MultiheadAttention(d_model, n_heads)
        self.feed_forward = _FeedForward(draw, d_model, d_ff)

    def __call__(self, x: np.ndarray, padding: np.ndarray | None) -> np.ndarray:
        x = _normed(x + self.attention(x, x, x, key_padding_mask=padding)[0])
        return _normed(x + self.feed_forward(x))


class _DecoderLayer:
    def __init__(self, draw: np.random.Generator, d_model: int, n_heads: int, d_ff: int) -> None:
        self.of_target = MultiheadAttention(d_model, n_heads)
        self.of_memory = MultiheadAttention(d_model, n_heads)
        self.feed_forward = _FeedForward(draw, d_model, d_ff)

    def __call__(
        self,
        x: np.ndarray,
        memory: np.ndarray,
        tgt_padding: np.ndarray | None,
        memory_padding: np.ndarray | None,
    ) -> np.ndarray:
        T = x.shape[1]
        later = np.zeros((T, T), dtype=bool)
        for i in range(T):
            for j in range(i + 1, T):
                later[i, j] = True
        x = _normed(x + self.of_target(x, x, x, attn_mask=later, key_padding_mask=tgt_padding)[0])
        x = _normed(x + self.of_memory(x, memory, memory, key_padding_mask=memory_padding)[0])
        return _normed(x + self.feed_forward(x))


class DecoderStack:
    """Ids, embedding, positions, layers, head."""

    def __init__(
        self, V: int, d_model: int, n_heads: int, d_ff: int, n_layers: int, max_len: int = 512
    ) -> None:
        draw = np.random.default_rng(9)
        self.words = draw.normal(0, 1, (V, d_model))
        self.positions = positional_encoding(max_len, d_model)
        self.layers = [_DecoderLayer(draw, d_model, n_heads, d_ff) for _ in range(n_layers)]
        self.head = draw.normal(0, d_model**-0.5, (V, d_model))

    def __call__(
        self,
        tgt: np.ndarray,
        memory: np.ndarray,
        tgt_key_padding_mask: np.ndarray | None = None,
        memory_key_padding_mask: np.ndarray | None = None,
    ) -> np.ndarray:
        """(B, T) ids, (B, S, d) -> (B, T, V); padding masks True = padding."""
        x = _with_positions(_look_up(self.words, tgt), self.positions)
        for layer in self.layers:
            x = layer(x, memory, tgt_key_padding_mask, memory_key_padding_mask)
        logits = np.zeros((*tgt.shape, len(self.head)))
        for place in np.ndindex(*tgt.shape):
            logits[place] = self.head @ x[place]
        return logits


class Transformer:
    """Encoder, then decoder."""

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
        draw = np.random.default_rng(10)
        self.words = draw.normal(0, 1, (src_vocab, d_model))
        self.positions = positional_encoding(max_len, d_model)
        self.encoder = [_EncoderLayer(draw, d_model, n_heads, d_ff) for _ in range(n_layers)]
        self.decoder = DecoderStack(tgt_vocab, d_model, n_heads, d_ff, n_layers, max_len)

    def encode(self, src: np.ndarray, src_key_padding_mask: np.ndarray | None = None) -> np.ndarray:
        x = _with_positions(_look_up(self.words, src), self.positions)
        for layer in self.encoder:
            x = layer(x, src_key_padding_mask)
        return x

    def decode(
        self,
        tgt: np.ndarray,
        memory: np.ndarray,
        tgt_key_padding_mask: np.ndarray | None = None,
        memory_key_padding_mask: np.ndarray | None = None,
    ) -> np.ndarray:
        return self.decoder(tgt, memory, tgt_key_padding_mask, memory_key_padding_mask)

    def __call__(
        self,
        src: np.ndarray,
        tgt: np.ndarray,
        src_key_padding_mask: np.ndarray | None = None,
        tgt_key_padding_mask: np.ndarray | None = None,
    ) -> np.ndarray:
        memory = self.encode(src, src_key_padding_mask)
        return self.decode(tgt, memory, tgt_key_padding_mask, src_key_padding_mask)

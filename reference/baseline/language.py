"""A decoder-only language model with a cache of keys and values: ids in, logits for the next token out.

The cache is passed in and returned: for each layer the keys and values of all tokens so far,
(B, h, P, d/h) each.  Nothing is kept inside, so a new sequence begins without one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

KeysValues = tuple[Tensor, Tensor]


class CachedSelfAttention(nn.Module):
    """Causal self-attention that takes up where the cache ends."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model {d_model} is not divisible by n_heads {n_heads}")
        self.n_heads = n_heads
        self.query, self.key, self.value, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        """(B, T, d) -> (B, h, T, d/h)."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def forward(
        self, x: Tensor, cache: KeysValues | None = None, real: Tensor | None = None
    ) -> tuple[Tensor, KeysValues]:
        """T new tokens (B, T, d) after P cached ones -> (B, T, d) and the cache of all P + T.

        ``real``: (B, P + T) bool, False at padding.
        """
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        if cache is not None:  # keys and values of earlier tokens never change: they see no later one
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)  # (B, h, P + T, d/h)
        T, S = x.size(1), k.size(2)
        allowed = torch.ones(T, S, dtype=torch.bool, device=x.device).tril(S - T)  # j <= P + i
        if real is not None:
            itself = torch.arange(S, device=x.device) == torch.arange(S - T, S, device=x.device)[:, None]
            allowed = allowed & real[:, None, None, :] | itself  # padding sees itself, so no row is empty
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))  # (B, h, T, P + T)
        weights = scores.masked_fill(~allowed, -math.inf).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2)), (k, v)


class CachedDecoderBlock(nn.Module):
    """Self-attention and cross-attention with a cache: keys and values of the memory are computed once.

    They belong to one sequence and its memory, so they travel with its cache.
    """

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.attention = CachedSelfAttention(d_model, n_heads)
        self.query, self.key, self.value = (nn.Linear(d_model, d_model) for _ in range(3))
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(
        self, x: Tensor, memory: Tensor, cache: tuple[KeysValues, KeysValues] | None = None
    ) -> tuple[Tensor, tuple[KeysValues, KeysValues]]:
        """T new tokens (B, T, d) over memory (B, S, d) -> (B, T, d) and the cache; ``memory`` is read once."""
        attended, own = self.attention(x, None if cache is None else cache[0])
        x = self.norm1(x + attended)
        split = self.attention.split
        k, v = cache[1] if cache is not None else (split(self.key(memory)), split(self.value(memory)))
        q = split(self.query(x))  # (B, h, T, d/h); k and v: (B, h, S, d/h)
        weights = (q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))).softmax(dim=-1)  # (B, h, T, S)
        x = self.norm2(x + (weights @ v).transpose(1, 2).flatten(2))
        return x, (own, (k, v))


class LanguageModelBlock(nn.Module):
    """Self-attention and feed-forward, each around a residual, with the norm in front."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.attention = CachedSelfAttention(d_model, n_heads)
        self.feed_forward = nn.Sequential(nn.Linear(d_model, d_ff), nn.GELU(), nn.Linear(d_ff, d_model))

    def forward(self, x: Tensor, cache: KeysValues | None, real: Tensor | None) -> tuple[Tensor, KeysValues]:
        attended, grown = self.attention(self.norm1(x), cache, real)
        x = x + attended
        return x + self.feed_forward(self.norm2(x)), grown


class LanguageModel(nn.Module):
    """Token and position embeddings, N blocks, a norm, and a score for each token of the vocabulary."""

    def __init__(
        self, vocab_size: int, d_model: int, n_heads: int, n_layers: int, d_ff: int, max_len: int
    ) -> None:
        super().__init__()
        self.max_len = max_len
        self.token_embedding = nn.Embedding(vocab_size, d_model)
        self.position_embedding = nn.Embedding(max_len, d_model)
        self.blocks = nn.ModuleList(LanguageModelBlock(d_model, n_heads, d_ff) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, vocab_size)

    def forward(
        self,
        ids: Tensor,
        targets: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cache: list[KeysValues] | None = None,
        use_cache: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor] | tuple[Tensor, list[KeysValues]]:
        """(B, T) ids after those in the cache -> logits (B, T, V); with ``targets`` (B, T) also the loss,
        with ``use_cache`` also the new cache.

        ``attention_mask``: (B, P + T), 1 at real tokens, 0 at padding.

        Raises:
            ValueError: cached and new tokens are more than ``max_len``.
            IndexError: an id lies outside of the vocabulary.
        """
        past = cache[0][0].size(2) if cache else 0
        if past + ids.size(1) > self.max_len:
            raise ValueError(f"{past + ids.size(1)} tokens are more than max_len = {self.max_len}")
        positions = torch.arange(past, past + ids.size(1), device=ids.device)
        x = self.token_embedding(ids) + self.position_embedding(positions)  # (B, T, d)
        real = None if attention_mask is None else attention_mask.bool()
        grown = []
        for n, block in enumerate(self.blocks):
            x, layer = block(x, cache[n] if cache else None, real)
            grown.append(layer)
        logits = self.head(self.norm(x))  # (B, T, V)
        if targets is not None:
            return logits, nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return (logits, grown) if use_cache else logits

    @torch.no_grad()
    def generate(
        self,
        ids: Tensor,
        max_new_tokens: int,
        eos_id: int | None = None,
        use_cache: bool = True,
        temperature: float = 0.0,
        top_k: int | None = None,
    ) -> Tensor:
        """The prompt (B, T) with up to ``max_new_tokens`` more: the likeliest ones, or drawn at a ``temperature``.

        With ``top_k`` only the so many most probable tokens of each row are drawn from.

        A row that has produced ``eos_id`` is filled with it; when every row has, generation ends.  Beyond
        ``max_len`` each token is found anew from the last ``max_len`` tokens, without the cache: positions shift.
        """
        cache, fed = None, 0
        ended = torch.zeros(ids.size(0), dtype=torch.bool, device=ids.device)
        for _ in range(max_new_tokens):
            if use_cache and ids.size(1) <= self.max_len:
                logits, cache = self(ids[:, fed:], cache=cache, use_cache=True)
                fed = ids.size(1)
            else:
                logits = self(ids[:, -self.max_len :])
            token = logits[:, -1].argmax(dim=-1)  # (B,)
            if temperature > 0:
                scores = logits[:, -1] / temperature  # (B, V)
                if top_k is not None:
                    least = scores.topk(min(top_k, scores.size(-1)), dim=-1).values[:, -1:]
                    scores = scores.masked_fill(scores < least, float("-inf"))
                probabilities = scores.softmax(dim=-1)
                token = torch.multinomial(probabilities, 1).squeeze(-1)
            if eos_id is not None:
                token = torch.where(ended, eos_id, token)
                ended = ended | (token == eos_id)
            ids = torch.cat([ids, token[:, None]], dim=1)
            if ended.all():
                break
        return ids

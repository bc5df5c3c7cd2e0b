"""A decoder-only language model with a cache, one token and one head at a time."""

from __future__ import annotations

import math

import numpy as np

from .generation import drawn

Cache = list[list[tuple[np.ndarray, np.ndarray]]]  # for each layer, for each token: key and value, (B, d)


class CachedSelfAttention:
    """Causal self-attention; the cache is a list with the key and the value of each token, in order."""

    def __init__(self, d_model: int, n_heads: int, seed: int = 5) -> None:
        if d_model % n_heads != 0:
            raise ValueError(f"{n_heads} heads do not divide a width of {d_model}")
        draw = np.random.default_rng(seed)
        self.n_heads, self.size = n_heads, d_model // n_heads
        self.w_query = draw.normal(0, d_model**-0.5, (d_model, d_model))
        self.w_key = draw.normal(0, d_model**-0.5, (d_model, d_model))
        self.w_value = draw.normal(0, d_model**-0.5, (d_model, d_model))
        self.w_out = draw.normal(0, d_model**-0.5, (d_model, d_model))

    def __call__(
        self,
        x: np.ndarray,
        cache: list[tuple[np.ndarray, np.ndarray]] | None = None,
        real: np.ndarray | None = None,
    ) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
        """(B, T, d) after the cached tokens; a token enters the list before it asks, and later ones after it."""
        known = list(cache or [])
        output = np.zeros_like(x)
        for t in range(x.shape[1]):
            known.append((x[:, t] @ self.w_key, x[:, t] @ self.w_value))
            query = x[:, t] @ self.w_query
            for b in range(len(x)):
                output[b, t] = self.look(query[b], known, b, real) @ self.w_out
        return output, known

    def look(
        self,
        query: np.ndarray,
        known: list[tuple[np.ndarray, np.ndarray]],
        b: int,
        real: np.ndarray | None,
    ) -> np.ndarray:
        """One query of one row over the tokens that are known; padding is passed over, except by itself."""
        seen = [j for j in range(len(known)) if real is None or real[b, j] or j == len(known) - 1]
        merged = np.zeros_like(query)
        for head in range(self.n_heads):
            own = slice(head * self.size, (head + 1) * self.size)
            scores = [float(query[own] @ known[j][0][b, own]) / math.sqrt(self.size) for j in seen]
            top = max(scores)
            powers = [math.exp(score - top) for score in scores]
            for j, power in zip(seen, powers, strict=True):
                merged[own] += power / sum(powers) * known[j][1][b, own]
        return merged


class CachedDecoderBlock:
    """Self-attention and then a look at the memory, whose keys and values are found anew for each call."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        draw = np.random.default_rng(8)
        self.attention = CachedSelfAttention(d_model, n_heads, 9)
        self.w_query = draw.normal(0, d_model**-0.5, (d_model, d_model))
        self.w_key = draw.normal(0, d_model**-0.5, (d_model, d_model))
        self.w_value = draw.normal(0, d_model**-0.5, (d_model, d_model))

    def __call__(
        self,
        x: np.ndarray,
        memory: np.ndarray,
        cache: list[tuple[np.ndarray, np.ndarray]] | None = None,
    ) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
        attended, cache = self.attention(x, cache)
        x = _normed(x + attended)
        output = np.zeros_like(x)
        known = [(memory[:, j] @ self.w_key, memory[:, j] @ self.w_value) for j in range(memory.shape[1])]
        for b in range(x.shape[0]):
            for t in range(x.shape[1]):
                output[b, t] = x[b, t] + self.attention.look(x[b, t] @ self.w_query, known, b, None)
        return _normed(output), cache


class LanguageModel:
    """Embeddings, layers of attention and feed-forward around residuals, a score per token."""

    def __init__(
        self, vocab_size: int, d_model: int, n_heads: int, n_layers: int, d_ff: int, max_len: int
    ) -> None:
        draw = np.random.default_rng(11)
        self.vocab_size, self.max_len = vocab_size, max_len
        self.tokens = draw.normal(0, 1, (vocab_size, d_model))
        self.places = draw.normal(0, 1, (max_len, d_model))
        self.attentions = [CachedSelfAttention(d_model, n_heads, seed) for seed in range(n_layers)]
        self.w_in = [draw.normal(0, d_model**-0.5, (d_model, d_ff)) for _ in range(n_layers)]
        self.w_back = [draw.normal(0, d_ff**-0.5, (d_ff, d_model)) for _ in range(n_layers)]
        self.w_vocab = draw.normal(0, d_model**-0.5, (d_model, vocab_size))

    def __call__(
        self,
        ids: np.ndarray,
        targets: np.ndarray | None = None,
        attention_mask: np.ndarray | None = None,
        cache: Cache | None = None,
        use_cache: bool = False,
    ) -> np.ndarray | tuple[np.ndarray, float] | tuple[np.ndarray, Cache]:
        """Logits (B, T, V); beside them the loss where there are targets, or the cache where it is asked for."""
        if ids.size and (ids.min() < 0 or ids.max() >= self.vocab_size):
            raise IndexError(f"ids go from 0 to {self.vocab_size - 1}")
        before = len(cache[0]) if cache else 0
        B, T = ids.shape
        if before + T > self.max_len:
            raise ValueError(f"there are places for {self.max_len} tokens, not for {before + T}")
        x = np.zeros((B, T, self.tokens.shape[1]))
        for b in range(B):
            for t in range(T):
                x[b, t] = self.tokens[ids[b, t]] + self.places[before + t]
        grown: Cache = []
        for n, attention in enumerate(self.attentions):
            attended, layer = attention(_normed(x), cache[n] if cache else None, attention_mask)
            grown.append(layer)
            x = x + attended
            x = x + np.maximum(_normed(x) @ self.w_in[n], 0.0) @ self.w_back[n]
        logits = _normed(x) @ self.w_vocab
        if targets is not None:
            return logits, self._loss(logits, targets)
        return (logits, grown) if use_cache else logits

    def _loss(self, logits: np.ndarray, targets: np.ndarray) -> float:
        """Mean over positions of log Σ exp(logits) − logits[target]."""
        losses = []
        for b in range(logits.shape[0]):
            for t in range(logits.shape[1]):
                top = float(logits[b, t].max())
                total = sum(math.exp(float(score) - top) for score in logits[b, t])
                losses.append(top + math.log(total) - float(logits[b, t, targets[b, t]]))
        return sum(losses) / len(losses)

    def generate(
        self,
        ids: np.ndarray,
        max_new_tokens: int,
        eos_id: int | None = None,
        temperature: float = 0.0,
        top_k: int | None = None,
    ) -> np.ndarray:
        """From the whole prefix each time; what follows a produced ``eos_id`` in a row is ``eos_id``."""
        rows = [[int(token) for token in row] for row in ids]
        begin = ids.shape[1]
        for _ in range(max_new_tokens):
            if eos_id is not None and all(eos_id in row[begin:] for row in rows):
                break
            logits = self(np.array([row[-self.max_len :] for row in rows]))
            assert isinstance(logits, np.ndarray)
            for b, row in enumerate(rows):
                if eos_id is not None and eos_id in row[begin:]:
                    row.append(int(eos_id))
                elif temperature > 0:
                    least = sorted(logits[b, -1])[-top_k] if top_k else -np.inf
                    row.append(drawn(np.where(logits[b, -1] < least, -np.inf, logits[b, -1]), temperature))
                else:
                    row.append(int(np.argmax(logits[b, -1])))
        return np.array(rows, dtype=ids.dtype)


def _normed(x: np.ndarray) -> np.ndarray:
    """Each vector with mean 0 and variance 1."""
    result = np.zeros_like(x)
    for place in np.ndindex(*x.shape[:-1]):
        mean = sum(x[place]) / len(x[place])
        variance = sum((value - mean) ** 2 for value in x[place]) / len(x[place])
        result[place] = (x[place] - mean) / math.sqrt(variance + 1e-5)
    return result

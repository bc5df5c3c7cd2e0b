"""From logits to the next token, one token at a time."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import numpy as np


def next_token_distribution(
    logits: np.ndarray, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> np.ndarray:
    """(…, V) probabilities; temperature, then top-k, then top-p.  Raises ValueError for T <= 0 and k < 1."""
    if temperature <= 0:
        raise ValueError("the temperature must be positive; use greedy_token for the likeliest token")
    if top_k is not None and top_k < 1:
        raise ValueError("top_k must be 1 or more")
    result = np.zeros(logits.shape, dtype=np.float64)
    for place in np.ndindex(logits.shape[:-1]):
        row = [float(number) / temperature for number in logits[place]]
        kept = list(_likeliest_first(row))
        if top_k is not None:
            kept = kept[:top_k]
        if top_p is not None and top_p < 1:
            kept = _nucleus(row, kept, top_p)
        total = sum(_weight(row, token) for token in kept)
        for token in kept:
            result[(*place, token)] = _weight(row, token) / total
    return result


def _weight(row: list[float], token: int) -> float:
    return math.exp(row[token] - max(row))


def _likeliest_first(row: list[float]) -> Iterator[int]:
    """Token ids by falling logit, found by looking for the largest one again and again."""
    left = list(range(len(row)))
    while left:
        best = left[0]
        for token in left:
            if row[token] > row[best]:
                best = token
        left.remove(best)
        yield best


def _nucleus(row: list[float], candidates: list[int], p: float) -> list[int]:
    """The candidates from the front until their share of the candidates' mass is p."""
    total = sum(_weight(row, token) for token in candidates)
    kept: list[int] = []
    share = 0.0
    for token in candidates:
        kept.append(token)
        share += _weight(row, token) / total
        if share >= p:
            break
    return kept


def sample_next_token(
    logits: np.ndarray, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> np.ndarray:
    """Token ids of the leading axes: the first token at which the running sum exceeds a random number."""
    distribution = next_token_distribution(logits, temperature, top_k, top_p)
    tokens = np.zeros(logits.shape[:-1], dtype=np.int64)
    for place in np.ndindex(tokens.shape):
        threshold, running = random.random(), 0.0
        for token, probability in enumerate(distribution[place]):
            running += probability
            if probability > 0:
                tokens[place] = token
                if running > threshold:
                    break
    return tokens


def greedy_token(logits: np.ndarray) -> np.ndarray:
    """Token ids of the leading axes: the first of the largest logits."""
    tokens = np.zeros(logits.shape[:-1], dtype=np.int64)
    for place in np.ndindex(tokens.shape):
        tokens[place] = next(_likeliest_first([float(number) for number in logits[place]]))
    return tokens

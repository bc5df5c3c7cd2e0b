"""Generation with plain lists: every token is looked for by comparing one logit after another."""

from __future__ import annotations

import random
from typing import Any

import numpy as np


def largest(row: Any) -> int:
    """The place of the largest number of a row."""
    best = 0
    for v in range(len(row)):
        if float(row[v]) > float(row[best]):
            best = v
    return best


def autoregressive_decode(model: Any, src: np.ndarray, max_len: int, bos: int = 1, eos: int = 2) -> list[int]:
    """One source (1, S): a list that starts with ``bos`` and has at most ``max_len`` tokens, ``bos`` included."""
    memory = model.encode(src)
    tokens = [bos]
    for _ in range(1, max_len):
        logits = model.decode_step(np.array([tokens]), memory)
        tokens.append(largest(logits[0][len(tokens) - 1]))
        if tokens[-1] == eos:
            return tokens
    return tokens


def greedy_decode(
    model: Any, src: np.ndarray, max_len: int, bos: int = 1, eos: int = 2, pad: int = 0
) -> list[list[int]]:
    """One source after another; shorter rows are filled up with ``pad``."""
    rows = [autoregressive_decode(model, src[b : b + 1], max_len, bos, eos) for b in range(len(src))]
    longest = max(len(row) for row in rows)
    return [row + [pad] * (longest - len(row)) for row in rows]


def generate(
    model: Any, idx: np.ndarray, max_new_tokens: int, eos: int = 2, pad: int = 0, context_size: int = 1024
) -> list[list[int]]:
    """Every prompt of (B, P) is continued by itself, with at most ``max_new_tokens``.

    The model is shown the newest ``context_size`` ids of a row.
    """
    rows = []
    for b in range(len(idx)):
        row = [int(n) for n in idx[b]]
        for _ in range(max_new_tokens):
            shown = row[max(0, len(row) - context_size) :]
            row.append(largest(model(np.array([shown]))[0][len(shown) - 1]))
            if row[-1] == eos:
                break
        rows.append(row)
    longest = max(len(row) for row in rows)
    return [row + [pad] * (longest - len(row)) for row in rows]


def beam_search(
    model: Any, src: np.ndarray, max_len: int, beam_size: int = 1, bos: int = 1, eos: int = 2
) -> list[int]:
    """The likeliest of ``beam_size`` sequences, each continued by every token and the worst dropped."""
    memory = model.encode(src)
    beams: list[tuple[float, list[int]]] = [(0.0, [bos])]
    for _ in range(1, max_len):
        grown: list[tuple[float, list[int]]] = []
        for score, tokens in beams:
            if tokens[-1] == eos:
                grown.append((score, tokens))
                continue
            row = model.decode_step(np.array([tokens]), memory)[0][len(tokens) - 1]
            top = max(float(x) for x in row)
            total = sum(float(np.exp(float(x) - top)) for x in row)
            for v in range(len(row)):
                grown.append((score + float(row[v]) - top - float(np.log(total)), [*tokens, v]))
        grown.sort(key=lambda beam: -beam[0])
        beams = grown[:beam_size]
    return beams[0][1]


def generate_sampled(
    model: Any, idx: np.ndarray, max_new_tokens: int, temperature: float = 1.0
) -> list[list[int]]:
    """Prompts continued with sampled tokens: a number is drawn, and the probabilities are added up to it."""
    rows = [[int(n) for n in row] for row in idx]
    for _ in range(max_new_tokens):
        for b in range(len(rows)):
            logits = model(np.array(rows))[b][len(rows[b]) - 1]
            rows[b].append(drawn(logits, temperature))
    return rows


def drawn(logits: Any, temperature: float) -> int:
    """A token for one row of logits (V,)."""
    top = max(float(x) for x in logits)
    weights = [float(np.exp((float(x) - top) / temperature)) for x in logits]
    left = random.random() * sum(weights)
    token = 0
    while token < len(weights) - 1 and left >= weights[token]:
        left -= weights[token]
        token += 1
    return token

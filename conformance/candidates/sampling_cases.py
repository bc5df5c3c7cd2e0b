"""The logits of a case: rows on which the settings of sampling, and their order, make a difference."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ..engine.cases import Case

SETTINGS = ("temperature", "top_k", "top_p")
CLEAR = 0.01  # no cumulative sum of a case comes nearer to its p than this, whatever the order
TRIES = 24
DEFAULT_ORDER = "temperature_top_k_top_p"
ORDERS = (
    DEFAULT_ORDER,
    "temperature_top_p_top_k",
    "top_k_top_p_temperature",
    "top_p_top_k_temperature",
)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Along the last axis; NaN where nothing is left."""
    with np.errstate(invalid="ignore", over="ignore"):
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)


def kept_counts(
    logits: np.ndarray, temperature: float | None, top_k: int | None, top_p: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """How many tokens each order keeps, (orders, R), and how near a cumulative sum comes to p, (R,).

    Both filters keep the front of the sorted distribution, so that a number says which tokens are kept.
    """
    ordered = -np.sort(-logits, axis=-1)  # (R, V)
    V = ordered.shape[-1]
    k = V if top_k is None else min(top_k, V)
    if top_p is None or top_p >= 1:
        return np.full((len(ORDERS), len(logits)), k), np.ones(len(logits))
    counts, nearest = [], np.ones(len(logits))
    for order in ORDERS:
        scale = (temperature or 1.0) if order.startswith("temperature") else 1.0
        width = k if "top_k_top_p" in order else V
        mass = softmax(ordered[:, :width] / scale).cumsum(axis=-1)
        counts.append(np.minimum((mass < top_p).sum(axis=-1) + 1, k))
        nearest = np.minimum(nearest, np.abs(mass - top_p).min(axis=-1))
    return np.array(counts), nearest


def settings_of(case: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a case as numbers, None for ``off``."""
    given = {name: case.get(name, "off") for name in SETTINGS}
    return {
        name: None if value == "off" else int(value) if name == "top_k" else float(value)
        for name, value in given.items()
    }


@lru_cache(maxsize=8192)
def logits_of(case: Case) -> np.ndarray:
    """(B, V) logits of a case: no two of a row equal, and no cumulative sum near p.

    Among a few rows the one is taken on which the orders of the settings differ most.
    """
    rng, B, V, regime = case.rng, case["B"], case["V"], case.get("regime", "ordinary")
    span = 2 * V if regime == "flat" else 41
    steps = rng.random((B * TRIES, span)).argsort(axis=1)[:, :V] - span // 2  # distinct whole numbers
    if regime == "huge":
        rows = np.where(steps % 2 == 0, 1e4, 1e4 - 1) + 0.5 * steps
    elif regime == "far apart":
        rows = 500.0 * steps
    elif regime == "steep":  # each token about half as likely as the one before it
        rows = np.round(0.7 * steps[:, :V].argsort(axis=1) + rng.integers(-20, 5, (B * TRIES, 1)) / 10, 1)
    elif regime == "ties":
        return _tied(rng, case)
    elif regime in ("ordinary", "flat", "negative", "positive", "peaked"):
        rows = np.round(steps / 10 + {"negative": -8.0, "positive": 8.0}.get(regime, 0.0), 1)
        if regime == "peaked":
            rows[np.arange(len(rows)), rng.integers(V, size=len(rows))] = 3.5
    else:
        raise ValueError(f"unknown regime {regime!r}")
    counts, nearest = kept_counts(rows, **settings_of(case))
    different = [len(set(column)) for column in counts.T]
    worth = np.where(nearest >= CLEAR, 10 + np.array(different), 10 * nearest)
    return rows.reshape(B, TRIES, V)[np.arange(B), worth.reshape(B, TRIES).argmax(axis=1)]


def _tied(rng: np.random.Generator, case: Case) -> np.ndarray:
    """Rows in which the k-th largest logit is shared: one of the equal ones is within the k, one is not."""
    B, V, k = case["B"], case["V"], int(case["top_k"])
    rows = np.empty((B, V))
    for row in rows:
        above = int(rng.integers(k))
        equal = int(rng.integers(k - above + 1, V - above + 1))
        row[:above] = 2.0 + 0.1 * np.arange(above)
        row[above : above + equal] = 1.0
        row[above + equal :] = -0.1 * (1 + np.arange(V - above - equal))
        rng.shuffle(row)
    return rows


def likely(logits: np.ndarray, settings: Mapping[str, Any]) -> np.ndarray:
    """The distribution under the usual order, for probing."""
    count = kept_counts(logits, **settings)[0][0]
    place = (-logits).argsort(axis=-1).argsort(axis=-1)
    return softmax(np.where(place < count[:, None], logits / (settings["temperature"] or 1.0), -np.inf))

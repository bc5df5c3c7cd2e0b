"""Chance: whether counts of random draws lie further from their probabilities than a correct candidate's.

Every property that counts draws asks here, so that a run has one budget of false alarms.  One comparison accuses a
correct candidate with a probability below ``ALARM``, and a run makes fewer than ``COMPARISONS`` of them: a false
alarm comes in fewer than ``ALARM * COMPARISONS`` of all runs, half of 1e-6.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

ALARM = 5e-10
COMPARISONS = 1000


def surprise(counts: ArrayLike, draws: int, probabilities: ArrayLike) -> np.ndarray:
    """A bound on how probable it is that each count is so far off, upwards or downwards, or further; float64.

    A count among independent draws is binomial, and Chernoff's bound says
    P(count / draws >= f) <= exp(-draws KL(f, p)) for f > p, and likewise downwards; KL is that of two coins,
    f log(f / p) + (1 - f) log((1 - f) / (1 - p)).  Both sides together double it.  The bound holds for every
    number of draws and every p, without a normal approximation.
    """
    f, p = np.asarray(counts) / draws, np.clip(probabilities, 1e-300, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = np.where(f > 0, f * np.log(f / p), 0.0)
        missed = np.where(f < 1, (1 - f) * np.log((1 - f) / np.maximum(1 - p, 1e-300)), 0.0)
    return 2.0 * np.exp(-draws * (drawn + missed))


def improbable(counts: ArrayLike, draws: int, probabilities: ArrayLike, parts: int = 1) -> np.ndarray:
    """Which counts are too far off for chance, where ``parts`` counts together make one comparison; bool."""
    return surprise(counts, draws, probabilities) < ALARM / parts

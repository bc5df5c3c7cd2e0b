"""The base state of the weight method: a value for every parameter, by its shape alone.

In it layout cannot matter: attention weights are one small symmetric matrix, tiled; feed-forward weights are W
and its transpose; biases are 0 and all gains alike.  The same rule serves the candidate and the reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


def is_gain(values: np.ndarray) -> bool:
    """Whether a parameter looks like the gain of a norm before training: all ones."""
    return values.size > 1 and bool((values == 1).all())


@dataclass(frozen=True)
class Rule:
    """Which value a parameter has in the base state, by its shape alone (and whether it is a gain).

    ``unit`` is the width of a head (or a divisor of it), ``width`` the model's, ``inner`` the feed-forward's.
    """

    unit: int
    width: int
    inner: int
    gain: np.ndarray
    square: np.ndarray  # (unit, unit), symmetric
    wide: np.ndarray  # (inner, width)
    words: int = 0  # the vocabulary, where there is an embedding
    embedding: np.ndarray | None = None  # (words, width)
    together: int = (
        0  # rows of one packed projection that stand together before the next one's; 0: all of them
    )

    def kind(self, shape: tuple[int, ...], gain: bool) -> str:
        """``gain``, ``vector``, ``feed-forward``, ``attention``, or nothing where the shape says nothing."""
        axes = [n for n in shape if n != 1]
        if not axes:
            return ""
        features = [n for n in axes if n % self.unit == 0]
        if sorted(axes) == sorted((self.inner, self.width)) and self.is_inner:
            return "feed-forward"
        if self.words and sorted(axes) == sorted((self.words, self.width)):
            return "embedding"
        if len(axes) == 2 and axes[1] == self.width and axes[0] > 4 * self.width:
            return "vector"  # a table of positions
        if len(axes) == 1 or (len(features) == 1 and self.inner not in axes):
            known = len(features) == 1 or axes[0] in (self.inner, self.words)
            return ("gain" if gain and self.width in axes else "vector") if known else ""
        return "attention" if len(features) == 2 else ""

    @property
    def is_inner(self) -> bool:
        """Whether the inner width can be told from everything else by its size."""
        return self.inner not in (self.unit, self.width, 2 * self.width, 3 * self.width)

    def value(self, shape: tuple[int, ...], gain: bool) -> np.ndarray | None:
        kind = self.kind(shape, gain)
        if kind == "gain":
            place = next(k for k, n in enumerate(shape) if n == self.width)  # norms may be stacked
            others = [k for k in range(len(shape)) if k != place]
            return np.broadcast_to(np.expand_dims(self.gain, others), shape).copy()
        if kind == "vector":
            return np.zeros(shape)
        if kind == "embedding" and self.embedding is not None:
            axes = [n for n in shape if n != 1]
            return (self.embedding if axes[0] == self.words else self.embedding.T).reshape(shape)
        if kind == "feed-forward":
            axes = [n for n in shape if n != 1]
            return (self.wide if axes[0] == self.inner else self.wide.T).reshape(shape)
        if kind == "attention":
            places = np.indices(shape)
            first, second = (places[k] for k, n in enumerate(shape) if n != 1 and n % self.unit == 0)
            packs = {n: n // self.width for n in shape if n in (2 * self.width, 3 * self.width)}
            if self.together and packs:
                k, sizes = self.together, [n for n in shape if n != 1 and n % self.unit == 0]
                first, second = (
                    place // (packs.get(n, 1) * k) * k + place % k
                    for place, n in zip((first, second), sizes, strict=True)
                )
            return self.square[first % self.unit, second % self.unit]
        return None


def base_state(rng: np.random.Generator, unit: int, width: int, inner: int, words: int = 0) -> Rule:
    """A base state for layers of these sizes, and for an embedding of so many words."""
    square = rng.normal(0.0, 0.7 * width**-0.5, (unit, unit))  # small, so that rows stay different
    return Rule(
        unit,
        width,
        inner,
        rng.uniform(0.5, 1.5, width),
        (square + square.T) / 2**0.5,
        rng.normal(0.0, width**-0.5, (inner, width)),
        words,
        rng.normal(0.0, 1.0, (words, width)),
    )


def inner_width(shapes: Iterable[tuple[int, ...]], unit: int, width: int) -> int:
    """The feed-forward's inner width as the shapes of the weights tell it, or the model's width.

    One that other weights may have too (stacked gains, packed projections, one head of many) is told by a pair.
    """
    pairs = [tuple(n for n in shape if n != 1) for shape in shapes]
    for axes in pairs:
        if len(axes) == 2 and width in axes:
            other = axes[0] + axes[1] - width
            if other > 4 and other not in (unit, width, 2 * width, 3 * width):
                return other
    paired = [
        axes for axes in pairs if len(axes) == 2 and axes[1] == width != axes[0] and axes[::-1] in pairs
    ]
    for inner, _ in paired:
        if inner != unit or pairs.count((unit, width)) == pairs.count((width, unit)) == 1:
            return inner
    return width

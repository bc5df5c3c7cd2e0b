"""Ways of feeding a candidate in pieces."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from . import wire
from .parameters import Parameter

CACHE_FIELDS = re.compile(r"past|cache|present|kv|state", re.IGNORECASE)


@dataclass(frozen=True)
class Feed:
    """One way of feeding a candidate in pieces.

    Attributes:
        kind: ``returned`` (the result holds the cache, the next call takes it), ``filled`` (an object that is
            passed in grows), or ``kept`` (the candidate keeps it itself).
        first: what stands for the cache of a new sequence: nothing, ``{}``, ``[]``, ``[None, …]``, ``[{}, …]``,
            a method of the candidate (``.name``), or a class of it (its path).
        path: where a result holds the cache.
        pick: where a result holds the output.
        start: how the number of tokens so far is told: not at all, ``number``, or ``positions``.
        reset: the method that makes the candidate forget.
        single: it takes single tokens, without an axis of time.
    """

    kind: str
    method: str
    arguments: Mapping[str, Parameter] = field(default_factory=dict)
    first: str = ""
    path: tuple[str | int, ...] = ()
    pick: tuple[str | int, ...] = ()
    start: str = ""
    reset: str = ""
    single: bool = False

    @property
    def words(self) -> str:
        said = {"returned": "passed in and returned", "filled": "passed in and filled", "kept": "kept inside"}
        reset = f", {self.reset}() begins anew" if self.reset else ""
        return said[self.kind] + reset + (f", {self.method}() takes single tokens" if self.single else "")


def compositions(T: int) -> list[tuple[int, ...]]:
    """Every way of cutting T tokens into pieces, the fewest pieces first."""
    found = []
    for cuts in range(1 << (T - 1)):
        edges = [0, *(n for n in range(1, T) if cuts >> (n - 1) & 1), T]
        found.append(tuple(b - a for a, b in pairwise(edges)))
    return sorted(found, key=lambda sizes: (len(sizes), sizes))


def squeezed(value: Any) -> Any:
    """An array of one token each without the axis of time."""
    if isinstance(value, wire.Array) and value.values.ndim > 1 and value.values.shape[1] == 1:
        return replace(value, values=value.values[:, 0])
    return value


def cache_in(raw: Any, pick: Sequence[str | int]) -> tuple[str | int, ...] | None:
    """Where a result holds the cache: the part that is not the output, None, or a single number."""
    if isinstance(raw, dict):
        items: list[tuple[str | int, Any]] = list(raw.items())
    elif isinstance(raw, tuple | list):
        items = list(enumerate(raw))
    else:
        return None
    left = [
        (name, value)
        for name, value in items
        if name != (pick[0] if pick else None)
        and value is not None
        and not isinstance(value, int | float | str)
        and not (isinstance(value, wire.Array) and value.values.ndim == 0)
    ]
    named = [name for name, _ in left if isinstance(name, str) and CACHE_FIELDS.search(name)]
    if named:
        return (named[0],)
    return (left[-1][0],) if left else None

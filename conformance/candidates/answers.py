"""Finding arrays in what a candidate returned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from . import wire


def leaves(
    value: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], wire.Array]]:
    """Every array in what came back, with the path to it; nested lists of numbers are arrays too."""
    value = _listed(value)
    if isinstance(value, wire.Array):
        yield path, value
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, (*path, name))


def at(value: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return _listed(value)


def _listed(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], list):
        try:
            numbers = np.array(value)
        except ValueError:
            return value
        if numbers.dtype.kind in "fib":
            return wire.Array(numbers, numbers.dtype.name, "list")
    return value

"""Token ids, read from whatever holds them: arrays, lists, tuples with scores beside them, named parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from . import wire

PARTS = "tokens sequences sequence ids output_ids output tgt".split()  # what a result calls its ids


def integer(value: Any) -> int | None:
    """A whole number, from whatever holds it; None if it is none."""
    if isinstance(value, wire.Array) and value.values.size == 1 and value.values.ndim == 0:
        value = value.values.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if abs(value) < 1 << 62 and value == int(value) else None


def ids_of(value: Any) -> np.ndarray | None:
    """Token ids: an integer array, or a (nested) list of integers or of integer scalars."""
    if isinstance(value, wire.Array):
        return value.values.astype(np.int64) if value.values.dtype.kind in "iu" else None
    if isinstance(value, list | tuple) and value:
        items = [integer(item) for item in value]
        if None not in items:
            return np.array(items, dtype=np.int64)
        rows = [row for item in value if (row := ids_of(item)) is not None]
        if len(rows) == len(value) and len({row.shape for row in rows}) == 1:
            return np.stack(rows)
    return None


def rows_of(raw: Any) -> list[list[int]] | None:
    """The token sequences in a result, whatever holds them; None if there are none."""
    if isinstance(raw, wire.Array):
        return _rows_of_array(raw.values)
    if isinstance(raw, dict):
        return _first_rows([*(raw[name] for name in PARTS if name in raw), *raw.values()])
    if not isinstance(raw, list | tuple):
        return None
    for read in (integer, _only):
        row = [number for item in raw if (number := read(item)) is not None]
        if len(row) == len(raw) and (isinstance(raw, list) or len(raw) != 1 or read is _only):
            return [row]
    if isinstance(raw, tuple) or any(not isinstance(item, list | wire.Array) for item in raw):
        return _first_rows(raw)
    found = [rows for item in raw if (rows := rows_of(item)) is not None]
    if len(found) == len(raw) and all(len(rows) == 1 for rows in found):
        return [rows[0] for rows in found]
    return found[0] if found else None


def _rows_of_array(values: np.ndarray) -> list[list[int]] | None:
    """(t,) or (B, t); whole numbers of a floating-point dtype are ids too."""
    if values.dtype.kind not in "iuf" or values.ndim not in (1, 2):
        return None
    if values.dtype.kind == "f" and not (np.isfinite(values).all() and (values == np.round(values)).all()):
        return None
    return [[int(n) for n in row] for row in np.atleast_2d(values).tolist()]


def _first_rows(items: Iterable[Any]) -> list[list[int]] | None:
    return next((rows for item in items if (rows := rows_of(item)) is not None), None)


def _only(item: Any) -> int | None:
    """The number in an array that holds one."""
    return integer(item.values.item()) if isinstance(item, wire.Array) and item.values.size == 1 else None


def arrays_of(value: Any) -> Iterator[wire.Array]:
    """The arrays in a value, however deep."""
    if isinstance(value, wire.Array):
        yield value
    elif isinstance(value, list | tuple | dict):
        for item in list(value.values() if isinstance(value, dict) else value)[:8]:
            yield from arrays_of(item)

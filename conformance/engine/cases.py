"""Cases and their arrays.

Hypothesis draws a case: a few small numbers, words for mask and regime, and a seed.  NumPy makes the
arrays from it, several attention instances to a case, on a grid of one decimal so that they can be read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ...spec import Formula, Role, parse_shape
from ..candidates.errors import TriuError


class OutOfDomain(TriuError):
    """The candidate does not claim to take such a case; it is skipped and counts for nothing."""


class Unseen(TriuError):
    """The candidate answered, but its answer cannot show whether the claim holds: ``inconclusive``."""


class Case(Mapping[str, Any]):
    """One drawn case: its dimensions by name, and ``seed`` for the arrays.  Immutable and hashable."""

    __slots__ = ("_hash", "_values", "items_")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)
        self.items_ = tuple(self._values.items())
        self._hash = hash(self.items_)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Case) and self.items_ == other.items_

    def __repr__(self) -> str:
        return f"Case({', '.join(f'{k}={v!r}' for k, v in self.items_)})"

    def replaced(self, **changes: Any) -> Case:
        return Case({**self._values, **changes})

    @property
    def rng(self) -> np.random.Generator:
        """A generator that depends on the case alone."""
        text = repr(sorted(self.items_))
        return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))


class Inputs(Mapping[str, Any]):
    """Canonical inputs of a role: arrays, sizes, and masks as booleans with True = allowed.  Not to be changed."""

    __slots__ = ("_given", "_key", "case")

    def __init__(self, case: Case, given: Mapping[str, Any]) -> None:
        self.case = case
        self._given = dict(given)
        self._key: tuple[Any, ...] | None = None

    def __getitem__(self, name: str) -> Any:
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def replaced(self, **changes: Any) -> Inputs:
        return Inputs(self.case, {**self._given, **changes})

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for equal inputs: what results are remembered by."""
        if self._key is None:
            parts: list[Any] = [self.case.items_]
            for name, value in self._given.items():
                if isinstance(value, np.ndarray):
                    parts.append((name, value.shape, value.dtype.str, value.tobytes()))
                else:
                    parts.append((name, value))
            self._key = tuple(parts)
        return self._key


@lru_cache(maxsize=256)
def symbolic_shape(shape: str) -> tuple[Formula, ...]:
    """The axes of a symbolic shape, as formulas over a case."""
    return parse_shape(shape)


def normal(rng: np.random.Generator, shape: tuple[int, ...], scale: float = 1.2) -> np.ndarray:
    """Standard deviation about ``scale``, one decimal."""
    return np.round(rng.normal(0.0, scale, shape), 1) + 0.0


def change(rng: np.random.Generator, shape: tuple[int, ...], scale: float, shift: float) -> np.ndarray:
    """What is added to vectors (…, d) to make others of them: of one decimal, and no vector of it is zero."""
    values = normal(rng, shape, scale) + shift
    values[(np.abs(values) < 1e-9).all(axis=-1)] = shift
    return values


def build_inputs(role: Role, case: Case) -> Inputs:
    """The canonical inputs of a role for one case.

    Arrays have the shapes of the role's arguments; a mask has (N, T, S) with True = allowed, or is None.
    """
    rng = case.rng
    values: dict[str, Any] = {}
    for argument in role.arguments:
        if argument.kind == "array" and argument.shape:
            axes = symbolic_shape(argument.shape)
            if all(axis.names <= case.keys() for axis in axes):  # a worked example brings its own arrays
                values[argument.name] = normal(rng, tuple(int(axis(case)) for axis in axes))
        elif argument.kind == "size" and argument.value is not None and argument.value.names <= case.keys():
            values[argument.name] = int(argument.value(case))
        elif argument.kind == "size" and argument.name in case:
            values[argument.name] = int(case[argument.name])
        elif argument.kind == "lengths":
            values[argument.name] = lengths(rng, case["B"], case["S"], case.get("full", True))
        elif argument.kind == "ids" and "pad_id" in case:
            values[argument.name] = padded_ids(values["lengths"], case)
        elif argument.kind == "scalar" and argument.name in case:
            values[argument.name] = case[argument.name]
    masks = [argument for argument in role.arguments if argument.kind == "mask"]
    if "mask" in case and (masks or "query" in values):
        values["mask"] = allowed_pattern(rng, case)
    if "regime" in case and {"query", "key", "value"} <= values.keys():
        values = apply_regime(values, case, rng)
    dtype = case.get("dtype")
    if dtype is not None:
        values = {
            k: as_dtype(v, dtype) if isinstance(v, np.ndarray) and v.dtype.kind == "f" else v
            for k, v in values.items()
        }
    return Inputs(case, values)


def as_dtype(values: np.ndarray, dtype: str) -> np.ndarray:
    """Values rounded to a dtype; bfloat16 is kept in float32."""
    if dtype == "bfloat16":
        bits = values.astype("<f4").view("<u4")
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view("<f4")
    return values.astype(dtype)


def lengths(rng: np.random.Generator, B: int, S: int, full: bool = True) -> np.ndarray:
    """A length from 1 to S per row, most of them shorter than S; with ``full`` one of them is S."""
    result = rng.integers(1, max(2, S), size=B)
    if full:
        result[int(rng.integers(B))] = S
    return result.astype(np.int64)


def padded_ids(real: np.ndarray, case: Case) -> np.ndarray:
    """(B, S) token ids; padding at the end, at the front, or in the middle.  Real tokens avoid the padding id."""
    B, S, pad = case["B"], case["S"], case["pad_id"]
    tokens = [t for t in (7, 3, 0, 5, 2, 8, 4, 1, 6, 9) if t != pad]
    ids = np.full((B, S), pad, dtype=np.int64)
    for b, n in enumerate(int(n) for n in real):
        row = [tokens[(b + j) % len(tokens)] for j in range(n)]
        first = {"end": n, "front": 0}.get(case.get("place", "end"), (n + 1) // 2)
        ids[b, :first] = row[:first]
        ids[b, S - (n - first) :] = row[first:]
    return ids


def allowed_pattern(rng: np.random.Generator, case: Case) -> np.ndarray | None:
    """(N, T, S) bool, True = allowed, with at least one allowed key in every row; None for no mask."""
    kind, B, h, T = case["mask"], case.get("B", 1), case.get("h", 1), case["T"]
    S = case.get("S", T)
    if kind == "none":
        return None
    rows = B if case.get("mask_rows") == "own" else 1
    pattern = np.zeros((rows, T, S), dtype=bool)
    for b in range(rows):
        if kind == "causal":
            pattern[b] = np.tri(T, S, dtype=bool)
        elif kind == "padding":
            n = int(rng.integers(1, max(2, S)))
            columns = np.arange(S) < n
            pattern[b] = columns[::-1] if rng.integers(3) == 0 else columns
        elif kind == "random":
            pattern[b] = rng.random((T, S)) < 0.6
            pattern[b, np.arange(T), rng.integers(S, size=T)] = True
        else:
            raise ValueError(f"unknown mask {kind!r}")
    full = np.repeat(pattern, B, axis=0) if rows == 1 else pattern
    return np.repeat(full, h, axis=0) if h > 1 and case.get("layout") != "block" else full


def apply_regime(values: dict[str, Any], case: Case, rng: np.random.Generator) -> dict[str, Any]:
    """Change queries, keys and values so that a rare situation becomes a common one."""
    regime = case["regime"]
    query, key, value = (values[name].copy() for name in ("query", "key", "value"))
    S, d = key.shape[1], key.shape[2]
    if regime == "ties":
        key[:, 1::2] = key[:, 0 : S - S % 2 : 2]
    elif regime == "equal keys":
        key[:] = key[:, :1]
    elif regime == "peaked":
        query = np.round(query * 2, 1)
    elif regime == "shifted":
        key = key + 2.0
    elif regime == "negative":
        query, key = np.abs(query) + 1.0, -(np.abs(key) + 1.0)
        weakest = np.max(query @ key.swapaxes(1, 2)) / np.sqrt(d)
        key = np.round(key * max(1.0, 6.0 / abs(weakest)), 1)
    elif regime == "huge":
        top = np.max(np.abs(query @ key.swapaxes(1, 2))) / np.sqrt(d)
        query = query * np.ceil(1e4 / max(top, 1e-3)) if top > 0 else query + 1e4
    elif regime == "blocked leads":
        query[:], key[:] = 0.0, 0.0
        query[..., 0] = 1.0
        # Later keys lead by 150 each, and every score lies between -1000 and -100: above the weakest sentinel
        # in use, -1e4, and below whatever is too weak to be one.
        key[..., 0] = np.round((150.0 * np.arange(S) - 1000.0) * np.sqrt(d), 1)
    elif regime == "offset values":
        value = value + 10.0
    elif regime != "ordinary":
        raise ValueError(f"unknown regime {regime!r}")
    return {**values, "query": query, "key": key, "value": value}

"""How a mask is handed to a layer: which kinds and shapes its parameter takes, and the encoding of a canonical one.

A canonical mask is (B, T, S) bool, True = allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..engine.cases import OutOfDomain

KINDS = ("boolean", "additive", "0 and 1")


def _same_rows(allowed: np.ndarray) -> np.ndarray | None:
    """(B, S) where no query differs from another."""
    return allowed[:, 0] if (allowed == allowed[:, :1]).all() else None


def _same_batch(allowed: np.ndarray) -> np.ndarray | None:
    """(T, S) where no batch row differs from another."""
    return allowed[0] if (allowed == allowed[:1]).all() else None


Form = Callable[[np.ndarray, int], "np.ndarray | None"]


def _of_batch(*axes: slice | None) -> Form:
    def encode(allowed: np.ndarray, heads: int) -> np.ndarray | None:
        shared = _same_batch(allowed)
        return None if shared is None else shared[axes]

    return encode


def _of_rows(*axes: slice | None) -> Form:
    def encode(allowed: np.ndarray, heads: int) -> np.ndarray | None:
        shared = _same_rows(allowed)
        return None if shared is None else shared[axes]

    return encode


ALL = slice(None)
# Shapes in the order in which they are tried; those that say less come first.
FORMS: dict[str, Form] = {
    "(T, S)": _of_batch(ALL, ALL),
    "(1, T, S)": _of_batch(None, ALL, ALL),
    "(1, 1, T, S)": _of_batch(None, None, ALL, ALL),
    "(B, S)": _of_rows(ALL, ALL),
    "(B, 1, S)": _of_rows(ALL, None, ALL),
    "(B, 1, 1, S)": _of_rows(ALL, None, None, ALL),
    "(B, T, S)": lambda allowed, heads: allowed,
    "(B, 1, T, S)": lambda allowed, heads: allowed[:, None],
    "(B·h, T, S)": lambda allowed, heads: np.repeat(allowed, heads, axis=0),
    "(T, S, 1)": _of_batch(ALL, ALL, None),
    "(T, S, B)": lambda allowed, heads: np.moveaxis(allowed, 0, -1),
    "(S,)": lambda allowed, heads: (
        None if (shared := _same_batch(allowed)) is None or _same_rows(allowed) is None else shared[0]
    ),
}
OF_KEYS = {"(B, S)", "(B, 1, S)", "(B, 1, 1, S)", "(S,)"}  # shapes of a mask that is the same for all queries


@dataclass
class GivenMask:
    """One mask parameter: ``kind``, and the shapes it takes (in the order in which they are preferred).

    ``square``: it was taken for T = S alone.  ``taken``: further shapes that are taken without hiding anything.
    """

    polarity: str = "allow"
    kind: str = "boolean"
    forms: list[str] = field(default_factory=lambda: ["(T, S)"])
    square: bool = False
    taken: list[str] = field(default_factory=list)

    def encode(self, allowed: np.ndarray, heads: int = 1, dtype: str = "float64") -> np.ndarray:
        """The mask in the first shape that can say it.  Raises OutOfDomain where none can."""
        for form in self.forms:
            values = FORMS[form](allowed, heads)
            if values is not None:
                return self._marked(np.ascontiguousarray(values), dtype)
        raise OutOfDomain("no shape of mask that the candidate takes can say this")

    def _marked(self, allowed: np.ndarray, dtype: str) -> np.ndarray:
        if self.kind == "additive":
            return np.where(allowed, 0.0, -np.inf).astype(dtype)
        marked = ~allowed if self.polarity == "block" else allowed
        return marked.astype(dtype) if self.kind == "0 and 1" else marked


def find_forms(
    mask: GivenMask,
    patterns: Sequence[np.ndarray],
    call: Callable[[np.ndarray], np.ndarray | None],
    right: Callable[[np.ndarray, np.ndarray], bool],
    heads: int,
    kinds: Sequence[str] = KINDS,
) -> bool:
    """Find out which kinds and shapes of mask a parameter takes; returns whether any is taken.

    Args:
        patterns: masks to try, (B, T, S); ``call`` gets an encoded one and returns the output, or None.
        right: whether an output shows that a mask acted.  A kind and shape that act are preferred; where none
            does, the first that is taken without an error stays, and the claims shall see it.
    """
    acting: dict[str, list[str]] = {}
    taken: dict[str, list[str]] = {}
    for kind in kinds:
        mask.kind = kind
        for form, encode in FORMS.items():
            for allowed in patterns:
                values = encode(allowed, heads)
                if values is None:
                    continue
                output = call(mask._marked(np.ascontiguousarray(values), "float64"))
                if output is None:
                    continue
                taken.setdefault(kind, []).append(form)
                if right(output, allowed) and (kind != "additive" or _adds(values, output, call)):
                    acting.setdefault(kind, []).append(form)
                break
        if kind in acting:
            break
    found = acting or taken
    if not found:
        mask.kind = "boolean"
        return False
    mask.kind, mask.forms = next(iter(found.items()))
    mask.taken = [form for form in taken[mask.kind] if form not in mask.forms]
    return True


def _adds(allowed: np.ndarray, blocked: np.ndarray, call: Callable[[np.ndarray], np.ndarray | None]) -> bool:
    """An additive mask adds: a small negative number must not block entirely."""
    softly = call(np.where(allowed, 0.0, -0.7))
    return (
        softly is not None and softly.shape == blocked.shape and bool(np.abs(softly - blocked).max() > 1e-6)
    )

"""When two objects do the same: equal answers but for rounding, equal sentences but for names and numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..candidates.errors import CallFailed, TriuError
from ..candidates.subject import CLOSE, Subject
from .cases import Inputs


def answer(subject: Subject, inputs: Inputs, fresh: bool = False) -> Mapping[str, Any] | str | None:
    """What it answers, "failed" if it fails, None where such inputs do not concern it."""
    try:
        return subject.gist(inputs, subject.call(inputs, fresh))
    except CallFailed:
        return "failed"
    except TriuError:
        return None


def same(own: Any, other: Any, close: float = CLOSE) -> bool:
    """Whether two answers are equal but for rounding (or chance), in what both of them have."""
    if isinstance(own, Mapping) and isinstance(other, Mapping):
        return all(same(own[name], other[name], close) for name in own.keys() & other.keys())
    if isinstance(own, list | tuple) and isinstance(other, list | tuple):
        return len(own) == len(other) and all(same(a, b, close) for a, b in zip(own, other, strict=True))
    if isinstance(own, str) or isinstance(other, str):
        return own == other
    try:
        a, b = np.asarray(own, dtype=np.float64), np.asarray(other, dtype=np.float64)
    except (TypeError, ValueError):
        return True  # not for comparing: a log, a plan
    if a.shape != b.shape:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.abs(b)[np.isfinite(b)]
        bound = close * max(1.0, float(finite.max()) if finite.size else 1.0)
        return bool(((np.abs(a - b) <= bound) | (a == b) | (np.isnan(a) & np.isnan(b))).all())


def pattern(what: str) -> str:
    """A sentence on a violation without what depends on weights, and without names that only its author uses."""
    what = re.sub(r"its parameter \S+", "its parameter …", what)
    what = re.sub(r"\S+ (and|is) \S+(?=,? (are one and the same|in the same place))", "…", what)
    what = re.sub(r"with respect to \S+", "with respect to …", what)
    what = re.sub(r"\b[A-Za-z_]\w*(\.\w+)+\b|\b[A-Za-z]\w*_\w*\b", "…", what)  # a.b, layers.0, a_b
    what = re.sub(r"(\[[^\[\]]*\])+", "#", what)
    what = re.sub(r"\s*\([^()]*\)", "", what)
    what = re.sub(r"\b(float|bfloat|int|uint)\d+\b", "dtype", what)
    what = re.sub(r": \S+, expected \S+", ": #, expected #", what)
    return re.sub(r"-?\b(\d+\.\d+(e[-+]?\d+)?|\d+e[-+]?\d+|nan|inf|NaN)\b", "#", what)

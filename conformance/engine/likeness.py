"""When two objects do the same: equal answers but for rounding, equal sentences but for names and numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import numpy as np

from ..candidates.errors import CallFailed, TriuError
from ..candidates.parameters import Parameter
from ..candidates.subject import CLOSE, Subject
from .cases import Inputs
from .run import Broken


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
        return a.size == b.size == 0
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.abs(b)[np.isfinite(b)]
        bound = close * max(1.0, float(finite.max()) if finite.size else 1.0)
        return bool(((np.abs(a - b) <= bound) | (a == b) | ~(np.isfinite(a) | np.isfinite(b))).all())


SAME_WORDS = (  # what depends on weights, on chance, or on names that only its author uses, in turn
    (r"new token \d+ of row \d+ is -?\d+, expected -?\d+", "a new token is another"),
    (r"\bthe id \d+|after \d+ (of them|tokens)", "…"),
    (r"as many parameters as with one, \d+", "as many parameters as with one"),
    (r"expected \d+ new tokens \(if it counts all\)", "expected 1 new tokens"),
    (r"\brow \d+ has \d+", "a row has some"),
    (r"\b(\d+) of \1\b", "all of all"),
    (r"\b\d+ of \d+\b|\b\d+ times in \d+", "some of all"),
    (r"expected -?\d+ new tokens?( or -?\d+|, as it counts.*)?", "expected new tokens"),
    (r"its parameter \S+", "its parameter …"),
    (r"\S+ (and|is) \S+(?=,? (are one and the same|in the same place))", "…"),
    (r"with respect to \S+", "with respect to …"),
    (r"\b[A-Za-z_]\w*(\.\w+)+\b|\b[A-Za-z]\w*_\w*\b", "…"),  # a.b, layers.0, a_b
    (r"(\[[^\[\]]*\])+", "#"),
    (r"\s*\([^()]*\)", ""),
    (r"\b(float|bfloat|int|uint)\d+\b", "dtype"),
    (r": \S+, expected \S+", ": #, expected #"),
    (r"-?\b(\d+\.\d+(e[-+]?\d+)?|\d+e[-+]?\d+|nan|inf|NaN)\b", "#"),
)


CHANGED = re.compile(r"changed its argument (argument (?P<place>\d+)|(?P<name>\S+))")


def pattern(what: str, arguments: Mapping[str, Parameter]) -> str:
    """A sentence on a violation without what two objects with one mistake need not have in common.

    ``arguments`` has the object's parameters by the names that all have in common.
    """

    def common(found: re.Match[str]) -> str:
        for name, parameter in arguments.items():
            names = (parameter.name, *parameter.also)
            if found["name"] in names or found["place"] == str(parameter.position):
                return f"changed its argument {name.replace('_', '-')}"
        return "changed its argument …"

    what = CHANGED.sub(common, what)
    for found, instead in SAME_WORDS:
        what = re.sub(found, instead, what)
    return what


def drawn_alike(one: Broken | None, other: Broken | None) -> bool:
    """Whether two objects break a claim in the same places, so far as these are drawn: what moves what.

    One row of several may differ: a query that sees nothing gets NaN in one style, the mean of all in another.
    """
    drawn: list[np.ndarray] = []
    for broken in (one, other):
        if broken is None or broken.trial.drawing is None:
            return True
        try:
            drawn.append(broken.trial.drawing().wrong)
        except (TriuError, ValueError):  # it hung, or answers in another form
            return True
    if drawn[0].shape != drawn[1].shape:
        return False
    differ = int((drawn[0] != drawn[1]).reshape(len(drawn[0]), -1).any(axis=1).sum()) if drawn[0].size else 0
    return differ <= (1 if len(drawn[0]) >= 4 else 0)


def complaint(problem: str) -> str:
    """Why no call succeeds, so far as two objects can be compared in it; empty if they cannot.

    That is what came back instead, or which two sizes met that do not fit; all are asked for the same sizes first.
    """
    text = problem.partition("the first attempt: ")[2]
    if text.startswith("it returned"):
        shapes = re.search(r"of shape (\([\d, ]*\)).* (for .*)", text)
        return f"{shapes[1]} {shapes[2]}" if shapes else ""
    sizes = re.search(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)", text)
    if sizes:
        return f"{min(sizes.groups(), key=int)} against {max(sizes.groups(), key=int)}"
    if "could not be broadcast" in text:
        shapes = [[int(n) for n in re.findall(r"\d+", part)] for part in re.findall(r"\(([\d, ]*)\)", text)]
        for aligned in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
            differing = sorted({size for size in aligned if size != 1})
            if len(differing) == 2:
                return f"{differing[0]} against {differing[1]}"
        return ""
    return re.sub(r" \([^()]*, line .*", "", text)

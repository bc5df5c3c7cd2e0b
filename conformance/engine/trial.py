"""One claim on one case: what a property is given, and how it says that something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...spec import Claim
from .cases import Case, Inputs, OutOfDomain
from .tolerance import rounding, score_scale

if TYPE_CHECKING:
    from ..candidates.subject import Results, Subject


@dataclass(frozen=True)
class Whole:
    """All of what was compared, of two axes: ``wrong`` says where it differs, ``compared`` where it counts."""

    expected: np.ndarray | None
    observed: np.ndarray
    wrong: np.ndarray
    compared: np.ndarray | None = None
    kind: Literal["matrix", "leak"] = "matrix"
    axes: tuple[str, str] | None = None


@dataclass(frozen=True)
class Difference:
    """Expected beside observed, with the first index at which they differ, and all others that are shown."""

    expected: Any
    observed: Any
    index: tuple[int, ...] | None = None
    wrong: tuple[tuple[int, ...], ...] = ()
    whole: Whole | None = None


class Violation(Exception):
    """A claim does not hold on a case.

    ``what`` is a sentence, ``difference`` the two sides, ``mutant`` the known mistake that it was recognised as.
    """

    def __init__(self, what: str, difference: Difference | None = None, mutant: str = "") -> None:
        super().__init__(what)
        self.what, self.difference, self.mutant = what, difference, mutant


class Trial:
    """A claim, a subject and a case.  ``margin`` is the largest error seen over the error allowed."""

    def __init__(
        self, claim: Claim, subject: Subject, partners: Sequence[Subject], case: Case, full: Inputs
    ) -> None:
        self.claim, self.subject, self.partners, self.case = claim, subject, tuple(partners), case
        self.full = full
        self.inputs = subject.default(full)
        self.margin = 0.0
        self.shown: Mapping[str, Any] | None = None
        # What to draw if the property does not hold, where that says more than the entries that were compared.
        self.drawing: Callable[[], Whole] | None = None

    # calling

    def call(self, inputs: Inputs | None = None, *, fresh: bool = False) -> Results:
        """Canonical results, for the case's inputs or others."""
        return self.subject.call(self.inputs if inputs is None else inputs, fresh)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is called within explains a violation, and is not what the snippet shows."""
        calls, shown = self.subject.last_calls, self.shown
        try:
            yield
        finally:
            self.subject.last_calls, self.shown = calls, shown

    def changed(self, **changes: Any) -> Results:
        """Canonical results for the case's inputs with some of them replaced."""
        return self.subject.call(self.inputs.replaced(**changes))

    def result(self, name: str, inputs: Inputs | None = None) -> np.ndarray:
        """One part of the results.  Weights that are not returned are read off with V = identity.

        Raises OutOfDomain where the candidate does not give that part.
        """
        inputs = self.inputs if inputs is None else inputs
        results = self.subject.call(inputs)
        if name in results:
            return results[name]
        if name == "weights" and "value" in inputs:
            N, S = inputs["key"].shape[:2]
            identity = np.broadcast_to(np.eye(S, dtype=inputs["value"].dtype), (N, S, S)).copy()
            return self.subject.call(inputs.replaced(value=identity))["output"]
        raise OutOfDomain(f"the candidate does not return its {name}")

    def skip(self, reason: str) -> OutOfDomain:
        return OutOfDomain(reason)

    # comparing

    @property
    def allowed(self) -> float:
        """The absolute error allowed for results in the hull of the values."""
        if self.claim.tolerance is not None:
            return self.claim.tolerance.absolute
        return self.allowed_for(self.inputs)

    def allowed_for(self, inputs: Inputs, values: bool = True) -> float:
        dtype = inputs.case.get("dtype", "float64")
        if self.subject.precision and dtype == "float64":
            dtype = self.subject.precision
        size = (
            float(np.abs(inputs["value"]).max())
            if values and "value" in inputs and inputs["value"].size
            else 1.0
        )
        return rounding(dtype, score_scale(inputs), size)

    def same(
        self,
        observed: np.ndarray,
        expected: np.ndarray,
        what: str,
        allowed: float | np.ndarray | None = None,
        where: np.ndarray | None = None,
        *,
        equal_nan: bool = False,
    ) -> None:
        """Demand equality up to the allowed error, in shape too; NaN equals nothing.

        ``where`` restricts the comparison to a boolean part.  Raises Violation.
        """
        bound = self.allowed if allowed is None else allowed
        if observed.shape != expected.shape:
            raise Violation(
                f"{what}: the shape is {list(observed.shape)}, expected {list(expected.shape)}",
                Difference(str(list(expected.shape)), str(list(observed.shape))),
            )
        if observed.dtype.kind not in "fbiu":
            raise Violation(f"{what}: the dtype is {observed.dtype}, expected numbers")
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(observed.astype(np.float64) - expected.astype(np.float64))
            wrong = ~(error <= bound)
        if equal_nan:
            both = np.isnan(observed) & np.isnan(expected)
            wrong, error = wrong & ~both, np.where(both, 0.0, error)
        if where is not None:
            wrong &= where
            error = np.where(where, error, 0.0)
        if error.size and not wrong.any():
            with np.errstate(invalid="ignore", divide="ignore"):
                ratio = np.max(error / np.maximum(bound, 1e-300))
            self.margin = max(self.margin, float(ratio))
        if wrong.any():
            self._refuse(observed, expected, wrong, what, where)

    def holds(self, condition: np.ndarray, observed: np.ndarray, what: str, expected: Any = None) -> None:
        """Demand a condition of every entry.  Raises Violation with the first entry that breaks it."""
        if not condition.all():
            index = tuple(int(n) for n in np.argwhere(~condition)[0])
            part, inner = focus(observed, index)
            alike = condition.shape == observed.shape
            wrong = marked(~condition, index) if alike else ()
            whole = _whole(None, observed, ~condition, None, index) if alike else None
            raise Violation(what, Difference(expected, part, inner, wrong, whole))

    def _refuse(
        self,
        observed: np.ndarray,
        expected: np.ndarray,
        wrong: np.ndarray,
        what: str,
        where: np.ndarray | None,
    ) -> None:
        index = tuple(int(n) for n in np.argwhere(wrong)[0])
        compared = None if where is None else np.broadcast_to(where, observed.shape)
        shown_observed, inner = focus(observed, index)
        shown_expected, _ = focus(expected if compared is None else _blanked(expected, compared), index)
        place = ", ".join(map(str, index))
        left, right = number(observed[index]), number(expected[index])
        if np.isnan(expected[index]) and np.isnan(observed[index]):
            left, right = "NaN, and so is what it is compared with", "numbers"
        elif left == right:
            left = f"{left} (off by {float(observed[index]) - float(expected[index]):.2g})"
        raise Violation(
            f"{what} at [{place}]: {left}, expected {right}",
            Difference(
                shown_expected,
                shown_observed,
                inner,
                marked(wrong, index),
                _whole(expected, observed, wrong, compared, index),
            ),
        )


def number(value: Any) -> str:
    """A number as a person would write it."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    value = float(value)
    return f"{value:.6g}"


SHOWN = 12


def focus(values: np.ndarray, index: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """The matrix (or the corner of it) that holds the index, as lists; and the index within it."""
    window, inner = _window(values, index)
    return _rounded(window), inner


def marked(wrong: np.ndarray, index: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The indices of all that is wrong within the matrix that :func:`focus` shows."""
    window, _ = _window(wrong, index)
    return tuple(tuple(int(n) for n in place) for place in np.argwhere(window))


def _blanked(values: np.ndarray, compared: np.ndarray) -> np.ndarray:
    """With None where nothing is compared."""
    blanked = values.astype(object)
    blanked[~np.broadcast_to(compared, values.shape)] = None
    return blanked


def _whole(
    expected: np.ndarray | None,
    observed: np.ndarray,
    wrong: np.ndarray,
    compared: np.ndarray | None,
    index: tuple[int, ...],
) -> Whole | None:
    """The matrix that holds the index, of each; None for what has no two axes."""
    if observed.ndim < 2:
        return None
    place = index[:-2]
    return Whole(
        None if expected is None else expected[place],
        observed[place],
        wrong[place],
        None if compared is None else compared[place],
    )


def _window(values: np.ndarray, index: tuple[int, ...]) -> tuple[np.ndarray, tuple[int, ...]]:
    while values.ndim > 2:
        values, index = values[index[0]], index[1:]
    if values.ndim == 0:
        return values, ()
    starts = [max(0, min(n - SHOWN // 2, size - SHOWN)) for n, size in zip(index, values.shape, strict=True)]
    window = values[tuple(slice(start, start + SHOWN) for start in starts)]
    return window, tuple(n - start for n, start in zip(index, starts, strict=True))


def _rounded(values: np.ndarray) -> Any:
    if values.dtype.kind == "f":
        return (
            np.vectorize(lambda v: float(f"{v:.5g}"), otypes=[float])(values).tolist() if values.size else []
        )
    if values.dtype == object:
        values = np.vectorize(lambda v: float(f"{v:.5g}") if isinstance(v, float) else v, otypes=[object])(
            values
        )
    return values.tolist()

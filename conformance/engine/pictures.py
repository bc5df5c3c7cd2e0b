"""What is drawn beside a failure: the matrices that were compared, on a case large enough to show a pattern."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...reports.fingerprint import without_numbers
from ...reports.json_report import finite
from ...spec import FormulaError, Picture
from ..candidates.errors import FATAL, CallFailed, TriuError
from .cases import Case, build_inputs, symbolic_shape
from .tolerance import drift
from .trial import SHOWN, Difference, Trial, Violation, Whole

if TYPE_CHECKING:
    from .run import Broken, Run

# A mask is recognised in six rows, an encoding in some dozens of positions.
LARGER = {"T": 6, "S": 6, "dv": 3}
POSITIONS = (33, 16)  # as many rows and columns of an encoding are shown
AXES = {"i": "query", "j": "key", "pos": "position", "c": "coordinate"}
WORDS = {
    "T": "position",
    "S": "key",
    "T - 1": "position",
    "d": "coordinate",
    "dv": "coordinate",
    "h * d": "coordinate",
    "V": "token",
}


def picture(run: Run, broken: Broken) -> Picture | None:
    """The picture of a failure, None where it is not a matter of matrices."""
    try:
        return _picture_of(run, broken)
    except Exception:  # a picture explains a verdict, and never makes one
        return None


def _picture_of(run: Run, broken: Broken) -> Picture | None:
    if not isinstance(broken.error, Violation):
        return None
    if run.subject.binding.path in run.engine.undrawable:
        return None
    small = broken.trial.case
    if run.subject.role.id == "positional_encoding":
        encoding = _encoding(run, broken.trial)
        if encoding is not None:
            return encoding
    large = _larger(run, small)
    found = None if large is None else run.attempt(large)[0]
    if found is not None and found.kind in FATAL:
        run.engine.undrawable.add(run.subject.binding.path)
    if found is None or not _alike(found, broken) or _whole(run, found) is None:
        found = broken
    whole = _whole(run, found)
    if whole is None:
        return None
    case = {} if found is broken else {n: finite(v) for n, v in found.trial.case.items() if v != small[n]}
    return _picture(found.trial, whole, case)


def _alike(found: Broken, broken: Broken) -> bool:
    """Whether two cases break a claim in the same words but for numbers."""
    one, other = found.error, broken.error
    if not (isinstance(one, Violation) and isinstance(other, Violation)):
        return False
    return without_numbers(one.what) == without_numbers(other.what)


def _encoding(run: Run, trial: Trial) -> Picture | None:
    """The whole table beside that of the formula, whatever part of it the claim is about."""
    from ..properties.positions import formula

    if trial.subject.convention("values") != "sinusoidal":
        return None
    case = trial.case
    for name, size in zip(("T", "d"), POSITIONS, strict=True):
        fitting = [n for n in trial.subject.limits.get(name, (size,)) if isinstance(n, int) and n <= size]
        if not fitting:
            return None
        case = case.replaced(**{name: max(fitting)})
    try:
        with trial.aside():
            table = trial.result("table", trial.subject.default(build_inputs(trial.subject.role, case)))
        right = formula(*table.shape)
    except (TriuError, ValueError, TypeError) as error:
        if isinstance(error, CallFailed) and error.kind in FATAL:
            run.engine.undrawable.add(run.subject.binding.path)
        return None
    wrong = ~(np.abs(table - right) <= drift(np.arange(len(right)))[:, None])
    whole = Whole(right, table, wrong, axes=("position", "coordinate"))
    return _picture(trial, whole, {"T": case["T"], "d": case["d"]})


def _larger(run: Run, case: Case) -> Case | None:
    """The same case with more positions, as far as the claim and the object admit it."""
    if run.subject.costly or run.choices is None:
        return None
    changes = {}
    for name, size in LARGER.items():
        fitting = [v for v in run.choices.get(name, ()) if isinstance(v, int) and case[name] < v <= size]
        if fitting:
            changes[name] = max(fitting)
    large = case.replaced(**changes)
    try:
        return large if changes and all(formula(large) for formula in run.claim.requires) else None
    except FormulaError:
        return None


def _whole(run: Run, broken: Broken) -> Whole | None:
    path = run.subject.binding.path
    if broken.trial.drawing is not None and path not in run.engine.undrawable:
        try:
            with broken.trial.aside():
                drawn = broken.trial.drawing()
            if drawn.wrong.any():
                return drawn
        except (TriuError, ValueError) as error:  # it hung, or another form than with the inputs of the case
            if isinstance(error, CallFailed) and error.kind in FATAL:
                run.engine.undrawable.add(path)
    assert isinstance(broken.error, Violation)
    difference = broken.error.difference
    return None if difference is None else difference.whole or _of_lists(difference)


def _of_lists(difference: Difference) -> Whole | None:
    """What was given as rows of numbers, one row or several."""
    try:
        expected, observed = (
            np.atleast_2d(np.asarray(side, dtype=np.float64))
            for side in (difference.expected, difference.observed)
        )
    except (TypeError, ValueError):
        return None
    if expected.shape != observed.shape or not isinstance(difference.observed, list):
        return None
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(expected - observed) <= 1e-6)
    return Whole(expected, observed, wrong)


def _picture(trial: Trial, whole: Whole, case: Mapping[str, Any]) -> Picture | None:
    observed = np.asarray(whole.observed)
    if observed.ndim != 2 or observed.size < 2 or not whole.wrong.any():
        return None
    encoding = trial.subject.role.id == "positional_encoding"
    kind = "positions" if encoding and whole.kind == "matrix" else whole.kind
    rows, columns = whole.axes or _axes(trial, observed.shape)
    size = POSITIONS if kind == "positions" else (SHOWN, SHOWN)
    first = np.argwhere(whole.wrong)[0]
    start = [max(0, min(int(n) - s // 2, w - s)) for n, s, w in zip(first, size, observed.shape, strict=True)]
    window = tuple(slice(a, a + s) for a, s in zip(start, size, strict=True))
    expected = whole.expected
    compared = None if whole.compared is None else np.broadcast_to(whole.compared, observed.shape)[window]
    return Picture(
        kind=kind,
        rows=rows,
        columns=columns,
        expected=None
        if expected is None
        else _cells(np.broadcast_to(expected, observed.shape)[window], compared),
        observed=_cells(observed[window]),
        wrong=tuple((int(i), int(j)) for i, j in np.argwhere(whole.wrong[window])),
        start=(start[0], start[1]),
        size=(observed.shape[0], observed.shape[1]),
        case=case,
    )


def _axes(trial: Trial, shape: tuple[int, ...]) -> tuple[str, str]:
    """What rows and columns are, by the indices of the claim's formula, or by the shape of the role's results."""
    indices = tuple(map(str, trial.claim.arguments.get("indices", ())))
    if len(indices) == 2:
        return AXES.get(indices[0], indices[0]), AXES.get(indices[1], indices[1])
    for result in trial.subject.role.results:
        axes = symbolic_shape(result.shape)[-2:]
        try:
            if len(axes) == 2 and tuple(int(axis(trial.case)) for axis in axes) == shape:
                names = [str(axis.text) for axis in axes]
                if result.name in ("weights", "allowed"):
                    return ("sequence" if names[0] == "B" else "query"), "key"
                return ("row" if names[0] == "B" else WORDS.get(names[0], names[0])), WORDS.get(
                    names[1], names[1]
                )
        except (FormulaError, KeyError):
            continue
    return "row", "column"


def _cells(values: np.ndarray, compared: np.ndarray | None = None) -> tuple[tuple[Any, ...], ...]:
    def cell(value: Any, counts: bool) -> Any:
        if not counts:
            return None
        if isinstance(value, bool | np.bool_):
            return int(value)
        number = float(value)
        if not np.isfinite(number):
            return repr(number)
        return int(number) if number == round(number) and abs(number) < 1e6 else float(f"{number:.4g}")

    counted = np.ones(values.shape, dtype=bool) if compared is None else compared
    return tuple(
        tuple(cell(v, bool(c)) for v, c in zip(row, counts, strict=True))
        for row, counts in zip(values, counted, strict=True)
    )


def leak(
    moves: Callable[[int], np.ndarray], inputs: int, *, owed: bool = False, causal: bool = True
) -> Whole:
    """Which input moves which output: ``moves(j)`` says for each output whether a change at j alone moved it.

    An output may be moved by inputs up to its own position (or by all); with ``owed`` it must be.
    """
    moved = np.stack([np.asarray(moves(j), dtype=bool) for j in range(inputs)], axis=1)
    allowed = np.tri(*moved.shape, dtype=bool) if causal else np.ones_like(moved)
    wrong = allowed & ~moved if owed else moved & ~allowed
    return Whole(allowed, moved, wrong, None, "leak", ("output", "input"))


def changed_outputs(after: np.ndarray, before: np.ndarray, size: float = 1e-5) -> np.ndarray:
    """For each position, whether its output is another in any instance and coordinate: (N, T, d) -> (T,)."""
    with np.errstate(invalid="ignore"):
        return ~(np.abs(after.astype(np.float64) - before).max(axis=(0, 2)) <= size)

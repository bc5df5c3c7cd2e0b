"""Properties of positional encodings.  ``table`` is (T, d), ``rows`` (B, T, d)."""

from __future__ import annotations

import numpy as np

from ..candidates.errors import CallFailed
from ..candidates.positions import PositionSubject
from ..engine.tolerance import drift
from ..engine.trial import Difference, Trial, Violation

__all__ = [
    "adds_to_embedding",
    "capacity",
    "distinct_rows",
    "far_positions",
    "half_sines",
    "learned_table",
    "no_trainable",
    "odd_width",
    "pair_frequency",
    "pair_rotation",
    "same_for_batch",
]


def formula(T: int, d: int) -> np.ndarray:
    """The paper's table, (T, d) float64; an odd width ends with a sine."""
    pos, c = np.arange(T)[:, None], np.arange(d)[None, :]
    angle = pos / 10000.0 ** (2 * (c // 2) / d)
    return np.where(c % 2 == 0, np.sin(angle), np.cos(angle))


def _table(trial: Trial) -> np.ndarray:
    table = trial.result("table")
    if table.ndim != 2:
        raise Violation(f"the encoding has shape {list(table.shape)}, expected (T, d)")
    return table


def _against_formula(trial: Trial, table: np.ndarray, what: str) -> None:
    expected = formula(trial.case["T"], trial.case["d"])
    trial.same(
        table, expected, what, np.broadcast_to(drift(np.arange(len(expected)))[:, None], expected.shape)
    )


def half_sines(trial: Trial) -> None:
    """At position 0 half of the coordinates are 0, half are 1."""
    first = _table(trial)[0]
    sines, cosines = int((np.abs(first) < 1e-6).sum()), int((np.abs(first - 1) < 1e-6).sum())
    half = trial.case["d"] // 2
    if (sines, cosines) != (half, half):
        raise Violation(
            f"position 0 has {sines} sines (0) and {cosines} cosines (1), expected {half} of each",
            Difference([half, half], [sines, cosines]),
        )


def pair_frequency(trial: Trial) -> None:
    """sin² + cos² = 1 in every pair."""
    table = _table(trial).astype(np.float64)
    squares = table[:, 0::2] ** 2 + table[:, 1::2] ** 2
    trial.same(squares, np.ones_like(squares), "the sum of squares of a pair [position, pair]", 1e-5)


def pair_rotation(trial: Trial) -> None:
    """The rotation from PE(pos) to PE(pos + k) does not depend on pos."""
    table = _table(trial).astype(np.float64)
    points = table[:, 1::2] + 1j * table[:, 0::2]  # cos + i sin
    T = len(points)
    for k in (1, 3, T // 2):
        if not 1 <= k < T - 1:
            continue
        turn = points[k:] * points[:-k].conj()
        first = np.broadcast_to(turn[:1], turn.shape)
        allowed = np.broadcast_to(2 * drift(np.arange(k, T))[:, None] + 1e-5, turn.shape)
        for name, part in (("cosine", np.real), ("sine", np.imag)):
            what = f"the {name} of the rotation by {k} [position, pair]"
            trial.same(part(turn), part(first), what, allowed)


def distinct_rows(trial: Trial) -> None:
    """No two positions share a vector."""
    table = _table(trial).astype(np.float64)
    subject = trial.subject
    if isinstance(subject, PositionSubject) and subject.convention("values") == "learned" and not table.any():
        table = subject.trained(trial.case).run(trial.inputs)["table"].astype(np.float64)
    gaps = np.abs(table[:, None] - table[None]).max(axis=-1) + np.eye(len(table))
    if gaps.min() < 1e-4:
        first, second = (int(n) for n in np.argwhere(gaps < 1e-4)[0])
        raise Violation(
            f"positions {first} and {second} have the same vector",
            Difference("another vector", table[second].tolist()[:12]),
        )


def same_for_batch(trial: Trial) -> None:
    """Every batch row shows the same encoding."""
    inputs = trial.full.replaced(x=np.zeros_like(trial.full["x"]))
    results = trial.call(inputs)
    rows = results.get("rows")
    if rows is None:
        raise Violation(
            f"for an embedding of shape {list(trial.full['x'].shape)} "
            f"the output has shape {list(results['output'].shape)}",
            Difference(str(list(trial.full["x"].shape)), str(list(results["output"].shape))),
        )
    first = np.broadcast_to(rows[:1], rows.shape)
    trial.same(rows, first, "the encoding differs between batch rows: the entry", 1e-5)
    if trial.subject.convention("values") == "sinusoidal" and rows.shape[1] > 1:
        same = np.abs(rows[0] - rows[0][:1]).max() < 1e-6
        if same:
            raise Violation(
                "the encoding is the same at every position",
                Difference("one vector per position", rows[0].tolist()),
            )


def adds_to_embedding(trial: Trial) -> None:
    """Output = embedding (scaled as probed) + table."""
    x = trial.full["x"].copy()
    d = trial.case["d"]
    if d == 4:
        x[0, 0] = [0.6, 0.7, 0.8, 0.9]
    table = trial.call(trial.full.replaced(x=np.zeros_like(x)))["output"]
    results = trial.call(trial.full.replaced(x=x))
    scale = np.sqrt(d) if results.get("scale") == "sqrt(d)" else 1.0
    expected = x * scale + np.broadcast_to(table, x.shape)
    trial.shown = {"x": x}
    trial.same(results["output"], expected, "the output against embedding plus encoding", 1e-4)


def far_positions(trial: Trial) -> None:
    """Beyond position 10000."""
    try:
        table = _table(trial)
    except CallFailed as error:
        if (
            error.kind == "exception"
            and "max_len" not in trial.subject.binding.constructor
            and trial.subject.has("constructor")
        ):
            raise trial.skip("its capacity cannot be set") from None
        raise
    _against_formula(trial, table, "far out, the entry")


def no_trainable(trial: Trial) -> None:
    """No trainable parameter in a module that adds fixed numbers."""
    found = trial.subject.session.parameters(trial.subject.built(trial.case))
    trainable = [(item["name"], item["value"].values.shape) for item in found if item["trainable"]]
    if trainable:
        name, shape = trainable[0]
        raise Violation(
            f"its parameter {name} of shape {list(shape)} is trainable",
            Difference("no trainable parameter", name),
        )


def learned_table(trial: Trial) -> None:
    """A module of learned positions has a trainable parameter."""
    found = trial.subject.session.parameters(trial.subject.built(trial.case))
    if not any(item["trainable"] for item in found):
        raise Violation(
            "learned positions are declared, but nothing is trainable",
            Difference("a trainable parameter", "none"),
        )


def odd_width(trial: Trial) -> None:
    """Refused, or right; the last coordinate, which has no partner, may be 0."""
    try:
        table = _table(trial)
    except CallFailed as error:
        if error.kind == "exception":
            return
        raise
    if table.ndim == 2 and table.shape[1] == trial.case["d"] and not table[:, -1].any():
        table = table.copy()  # the coordinate without a partner was left out, as code for even widths does
        table[:, -1] = formula(*table.shape)[:, -1]
    _against_formula(trial, table, f"for the odd width {trial.case['d']}, the entry")


def capacity(trial: Trial) -> None:
    """One position too many: refused, or right."""
    if "max_len" not in trial.subject.binding.constructor:
        raise trial.skip("it has no capacity to set")
    try:
        table = trial.result("table")
    except CallFailed as error:
        if error.kind == "exception":
            return
        raise
    if getattr(trial.subject, "form", "") != "adds" and table.ndim == 2 and 1 < len(table) < trial.case["T"]:
        return  # rows to be added by others, who cannot add too few of them
    what = f"one position beyond max_len = {trial.case['max_len']} was asked for without an error: the entry"
    if trial.subject.convention("values") == "learned":
        raise Violation(
            "positions beyond the learned ones gave no error",
            Difference("an error", f"shape {list(table.shape)}"),
        )
    if table.ndim != 2 or table.shape != (trial.case["T"], trial.case["d"]):
        raise Violation(
            f"{trial.case['T']} positions were asked for with max_len = {trial.case['max_len']}; "
            f"what came back has shape {list(table.shape)}, without an error",
            Difference("an error", f"shape {list(table.shape)}"),
        )
    _against_formula(trial, table, what)

"""Properties of any role: shapes, formulas, worked examples, independence of the batch, repeatability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...spec import Formula
from ..candidates.errors import CallFailed
from ..candidates.masks import as_array
from ..engine.cases import Inputs, OutOfDomain, build_inputs, change, normal
from ..engine.oracle import attention as reference_attention
from ..engine.oracle import effective_mask
from ..engine.pictures import changed_outputs, leak
from ..engine.tolerance import drift
from ..engine.trial import Difference, Trial, Violation, Whole

__all__ = [
    "batch_independent",
    "bounded",
    "elementwise",
    "example",
    "prefix_consistent",
    "reaches",
    "reaches_everywhere",
    "repeatable",
    "shape",
    "unaffected_by_future",
    "unchanged_inputs",
]


def shape(trial: Trial, result: str, shape: tuple[Formula, ...]) -> None:
    """The result's shape, axis by axis."""
    expected = tuple(int(axis(trial.case)) for axis in shape)
    observed = trial.result(result)
    if observed.shape != expected:
        raise Violation(
            f"the shape is {list(observed.shape)}, expected {list(expected)}",
            Difference(str(list(expected)), str(list(observed.shape))),
        )


def elementwise(
    trial: Trial, result: str, indices: tuple[str, ...], formula: Formula, drift: bool = False
) -> None:
    """Every entry against a formula of its indices."""
    observed = trial.result(result)
    grids = np.meshgrid(*(np.arange(n) for n in observed.shape[-len(indices) :]), indexing="ij")
    expected = np.asarray(formula({**trial.case, **dict(zip(indices, grids, strict=True))}))
    expected = np.broadcast_to(expected.astype(np.float64), observed.shape)
    allowed = _drift(grids[0]) if drift else 1e-9
    trial.same(observed, expected, _entry(result), np.broadcast_to(allowed, observed.shape))


def _entry(result: str) -> str:
    return "with 1 for allowed and 0 for blocked, the entry" if result == "allowed" else "the entry"


def _drift(positions: np.ndarray) -> np.ndarray:
    return drift(positions)


def bounded(trial: Trial, result: str, bound: float) -> None:
    """No entry beyond the bound in absolute value."""
    observed = trial.result(result)
    trial.holds(np.abs(observed) <= bound + 1e-6, observed, f"an entry exceeds {bound:g} in absolute value")


def prefix_consistent(trial: Trial, result: str, length: str, square: bool = False) -> None:
    """The result for a length is the beginning of that for greater ones."""
    short = trial.result(result)
    n = trial.case[length]
    limit = min(trial.case.get("max_len", n + 64), max(trial.subject.limits.get(length, (n + 64,))))
    for longer in dict.fromkeys((min(n + 1, limit), min(n + 7, limit), min(64, limit))):
        if longer <= n:
            continue
        role = trial.subject.role
        case = trial.case.replaced(**{length: longer})
        long = trial.result(result, trial.subject.default(build_inputs(role, case)))
        corner = long[: short.shape[0], : short.shape[1]] if square else long[: short.shape[0]]
        what = (
            f"for {length} = {n} the result is not the beginning of that for {length} = {longer}: the entry"
        )
        trial.same(short, corner, what, 1e-5)


def example(
    trial: Trial,
    result: str,
    expected: Sequence[Any],
    unit: float,
    inputs: Mapping[str, Any] | None = None,
    scores: Sequence[Any] | None = None,
    causal: bool = False,
) -> None:
    """A worked example, to half a unit of the last printed digit (and the rounding of printed inputs)."""
    given = trial.inputs
    if inputs is not None:
        arrays = {name: np.asarray(value, dtype=np.float64) for name, value in inputs.items()}
        if "query" in arrays:  # printed for one instance
            arrays = {name: array[None] for name, array in arrays.items()}
        given = Inputs(trial.case, {**arrays, "mask": None} if causal or "query" in arrays else arrays)
    if scores is not None:
        table = np.asarray(scores, dtype=np.float64)
        width = table.shape[1]
        arrays = {
            "query": table[None] * np.sqrt(width),
            "key": np.eye(width)[None],
            "value": np.eye(width)[None],
        }
        given = Inputs(trial.case, {**arrays, "mask": None})
    if causal:
        T, S = given["query"].shape[1], given["key"].shape[1]
        given = given.replaced(mask=np.tri(T, S, dtype=bool)[None])
    if "query" in given:
        case = trial.case.replaced(
            layout=trial.subject.limits["layout"][0], B=1, h=1, dtype=trial.subject.limits["dtype"][0]
        )
        case = case.replaced(T=given["query"].shape[1], S=given["key"].shape[1], d=given["query"].shape[2])
        given = Inputs(
            case,
            {k: v.astype(case["dtype"]) if k != "mask" and v is not None else v for k, v in given.items()},
        )
    trial.inputs = given
    observed = trial.result(result, given)
    printed = np.asarray(expected, dtype=np.float64)
    if observed.ndim == printed.ndim + 1 and len(observed) == 1:
        observed = observed[0]
    rows = min(len(printed), len(observed)) if observed.ndim == printed.ndim else len(printed)
    what = f"{_entry(result)} against the printed one"
    trial.same(observed[:rows], printed[:rows], what, unit * 0.5 + 2e-5)


def sources(trial: Trial) -> tuple[str, ...]:
    """Which inputs carry the content of a position."""
    if "x" in trial.inputs:
        return ("x",)
    return ("query",) if trial.subject.role.id == "causal_self_attention" else ("key", "value")


def unaffected_by_future(trial: Trial) -> None:
    """Changing what stands at j and later leaves outputs before j as they were."""
    names = sources(trial)
    before = trial.call()["output"]
    length = trial.inputs[names[0]].shape[1]
    rng = trial.case.rng
    for j in dict.fromkeys((1, length // 2, length - 1)):
        if not 1 <= j < length:
            continue
        changes = {}
        for name in names:
            changed = trial.inputs[name].copy()
            changed[:, j:] = (changed[:, j:] + change(rng, changed[:, j:].shape, 3.0, 1.0)).astype(
                changed.dtype
            )
            changes[name] = changed
        after = trial.changed(**changes)["output"]
        allowed = (
            max(trial.allowed, trial.allowed_for(trial.inputs.replaced(**changes)))
            if "value" in names
            else 1e-5
        )
        part = before[:, :j]
        trial.shown = changes
        trial.drawing = lambda: _leak(trial, names, before)
        trial.same(
            after[:, :j], part, f"after a change at positions {j} and later, the output before it", allowed
        )


def _leak(trial: Trial, names: Sequence[str], before: np.ndarray, **kind: bool) -> Whole:
    def moves(j: int) -> np.ndarray:
        changes = {}
        for name in names:
            values = trial.inputs[name].copy()
            noise = change(trial.case.rng, values[:, j].shape, 3.0, 1.0)
            values[:, j] = (values[:, j] + noise).astype(values.dtype)
            changes[name] = values
        return changed_outputs(trial.changed(**changes)["output"], before, 1e-7 if kind else 1e-5)

    return leak(moves, trial.inputs[names[0]].shape[1], **kind)


def reaches(trial: Trial) -> None:
    """For every allowed pair (i, j) a change at j changes the output at i."""
    if sources(trial) != ("key", "value"):
        _layer_reaches(trial)
        return
    mask = effective_mask(trial.subject.role.id, trial.inputs)
    weights = reference_attention(trial.inputs, mask)["weights"]
    before = trial.call()["output"]
    for j in range(trial.inputs["value"].shape[1]):
        value = trial.inputs["value"].copy()
        value[:, j] += 5.0
        moved = np.abs(trial.changed(value=value)["output"].astype(np.float64) - before).max(
            axis=-1
        )  # (N, T)
        owed = weights[:, :, j] * 5.0
        silent = (owed > max(1e-3, 100 * trial.allowed)) & ~(moved > 0.1 * owed)
        if silent.any():
            n, i = (int(v) for v in np.argwhere(silent)[0])
            raise Violation(
                f"the value at key {j} was raised by 5, but output {i} (instance {n}) did not change with it, "
                f"though query {i} may see key {j}",
                Difference(f"a change of {owed[n, i]:.3g}", f"a change of {moved[n, i]:.3g}", (i, j)),
            )


def _layer_reaches(trial: Trial, causal: bool = True) -> None:
    (name,) = sources(trial)
    before = trial.call()["output"]
    rng = trial.case.rng
    trial.drawing = lambda: _leak(trial, (name,), before, owed=True, causal=causal)
    for j in range(before.shape[1]):
        values = trial.inputs[name].copy()
        values[:, j] += normal(rng, values[:, j].shape, 2.0) + 0.1 * np.arange(values.shape[-1])
        moved = np.abs(trial.changed(**{name: values})["output"] - before).max(axis=(0, 2))
        for i in range(j if causal else 0, before.shape[1]):
            if not moved[i] > 1e-7:
                raise Violation(
                    f"the input at position {j} was changed, but output {i} did not change",
                    Difference("a change", f"a change of {moved[i]:.3g}", (i, j)),
                )


def reaches_everywhere(trial: Trial) -> None:
    """A change at any position changes every output."""
    _layer_reaches(trial, causal=False)


def batch_independent(trial: Trial) -> None:
    """The batch as a whole, row by row, and permuted."""
    h = trial.case["h"] if trial.case.get("layout") == "4d" else 1
    arrays = {n: v for n, v in trial.inputs.items() if isinstance(v, np.ndarray) and v.ndim == 3}
    count = len(next(iter(arrays.values()))) // h
    if count < 2:
        raise trial.skip("one row is no batch")
    whole = trial.call()["output"]
    allowed = trial.allowed if "value" in trial.inputs else 1e-5
    for b in range(min(count, 3)):
        rows = slice(b * h, (b + 1) * h)
        alone = trial.changed(**{n: v[rows] for n, v in arrays.items()})["output"]
        trial.same(
            whole[rows], alone, f"row {b} of the batch differs from the same row alone: the output", allowed
        )
    order = np.concatenate([np.arange(b * h, (b + 1) * h) for b in reversed(range(count))])
    turned = trial.changed(**{n: v[order] for n, v in arrays.items()})["output"]
    trial.same(turned, whole[order], "after reversing the batch, the output", allowed)


def repeatable(trial: Trial) -> None:
    """The same call before and after calls with other lengths."""
    first = _comparable(trial.call(fresh=True))
    dropping = trial.subject.with_dropout(0.5)
    if dropping is not None:
        quiet = _comparable(dropping.call(trial.inputs, fresh=True))
        for name, expected in first.items():
            what = f"built with dropout 0.5 and in eval mode, the {name}"
            trial.same(quiet.get(name, np.empty(0)), expected, what, 1e-9 + trial.allowed, equal_nan=True)
    role, case = trial.subject.role, trial.case
    n = case["T"]
    limit = case.get("max_len", 64)
    for other in (n + 1, min(n + 20, limit), max(1, n - 1)):
        changed = case.replaced(
            T=other,
            **({"S": case["S"] + other - n} if case.get("S", 0) + other - n >= 1 and "S" in case else {}),
        )
        try:
            trial.subject.call(trial.subject.default(build_inputs(role, changed)), fresh=True)
        except (CallFailed, OutOfDomain):
            continue
    second = _comparable(trial.call(fresh=True))
    third = _comparable(trial.call(fresh=True))
    for name, expected in first.items():
        for again, when in ((second, "after calls with other lengths"), (third, "at once again")):
            if again.get(name) is None or again[name].shape != expected.shape:
                raise Violation(f"the same call made {when} returned another shape of {name}")
            trial.same(
                again[name],
                expected,
                f"the same call made {when} gave another {name}",
                1e-9 + trial.allowed,
                equal_nan=True,
            )


def _comparable(results: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {n: v for n, v in results.items() if isinstance(v, np.ndarray) and n not in ("raw", "given")}


def unchanged_inputs(trial: Trial) -> None:
    """What was passed, read again after the call."""
    for before, after in trial.subject.run_returning_inputs(trial.full):
        positional = list(zip(before[0], after[0], strict=True))
        named = [(before[1][name], after[1].get(name)) for name in before[1]]
        names = [*(f"argument {n}" for n in range(len(positional))), *before[1]]
        for name, (sent, found) in zip(names, [*positional, *named], strict=True):
            if not hasattr(sent, "values"):
                continue
            left = as_array(found)
            same = left is not None and left[0].shape == sent.values.shape
            if (
                left is not None
                and same
                and np.array_equal(np.nan_to_num(sent.values), np.nan_to_num(left[0]))
            ):
                continue
            raise Violation(
                f"the call changed its argument {name}",
                Difference(
                    sent.values.tolist(), left[0].tolist() if left is not None and same else "another shape"
                ),
            )

"""Properties of masks: entries, counts, padding, forms.  ``allowed`` is 1 (allows), 0 (blocks), -1 (neither)."""

from __future__ import annotations

import numpy as np

from ...spec import Formula
from ..candidates.errors import CallFailed
from ..candidates.masks import MaskSubject
from ..engine.trial import Difference, Trial, Violation, Whole, focus, number

__all__ = [
    "allowed_is_zero",
    "edge_sizes",
    "fits_half",
    "forms_agree",
    "is_additive",
    "padding_pattern",
    "readable",
    "row_count",
    "sees_itself",
    "total_count",
    "usable_as_attn_mask",
    "zeros_and_ones",
]


def _seen(expected: object, observed: np.ndarray, index: tuple[int, ...]) -> Difference:
    """What was expected, beside the part of the mask around an index."""
    part, inner = focus(observed, index)
    return Difference(expected, part, inner)


def readable(trial: Trial) -> None:
    """Every entry allows or blocks."""
    results = trial.call()
    allowed, raw = results["allowed"], results["raw"]
    neither = allowed == -1
    if neither.any():
        index = tuple(int(n) for n in np.argwhere(neither)[0])
        value = raw[index]
        why = (
            "is NaN"
            if np.isnan(value)
            else f"is {number(value)}, which neither allows (near 0) nor blocks (-1e4 or stronger)"
        )
        raise Violation(f"the entry at {list(index)} {why}", _seen("near 0, or -1e4 and below", raw, index))
    if results["kind"] == "additive" and raw.ndim == 2:
        for i, row in enumerate(raw):
            shown = row[allowed[i] == 1]
            if shown.size and float(shown.max() - shown.min()) > 1e-6:
                raise Violation(
                    f"the entries of row {i} that allow differ from each other: they shift some scores and not others",
                    _seen("one value, 0", raw, (i, 0)),
                )
    if results["kind"] == "additive" and trial.case.get("T", 2) > 1 and raw.ndim == 2 and raw.shape[0] > 1:
        weak = raw[np.triu_indices(len(raw), 1)] if raw.shape[0] == raw.shape[1] else raw
        small = (weak != 0) & (np.abs(weak) < 1e-3)
        if small.any():
            value = weak[small][0]
            raise Violation(
                f"an entry is {number(value)}: too close to 0 to block anything",
                _seen("-inf, or -1e4 and below", raw, (0,) * raw.ndim),
            )


def _beside_pattern(trial: Trial, allowed: np.ndarray) -> Whole:
    """The mask beside the right one of its role."""
    right = np.tri(*allowed.shape, dtype=bool)
    if trial.subject.role.id == "prefix_lm_mask":
        right[:, : int(trial.case["k"])] = True
    return Whole(right, allowed, right != (allowed == 1), axes=("query", "key"))


def sees_itself(trial: Trial) -> None:
    """No entry of the diagonal blocks."""
    allowed = trial.result("allowed")
    trial.drawing = lambda: _beside_pattern(trial, allowed)
    for i in range(min(allowed.shape)):
        if allowed[i, i] != 1:
            raise Violation(f"position {i} is hidden from itself", _seen(1, allowed, (i, i)))


def total_count(trial: Trial, result: str, formula: Formula) -> None:
    """The number of allowed entries of the whole mask."""
    allowed = trial.result(result)
    trial.drawing = lambda: _beside_pattern(trial, allowed)
    expected, observed = int(formula(trial.case)), int((allowed == 1).sum())
    if observed != expected:
        raise Violation(
            f"{observed} entries are allowed, expected {formula.text} = {expected}",
            Difference(expected, observed),
        )


def row_count(trial: Trial, result: str, formula: Formula) -> None:
    """The number of allowed entries of each row."""
    allowed = trial.result(result)
    trial.drawing = lambda: _beside_pattern(trial, allowed)
    for i, row in enumerate(allowed):
        expected, observed = int(formula(trial.case, i=i)), int((row == 1).sum())
        if observed != expected:
            raise Violation(
                f"row {i} allows {observed} entries, expected {formula.text} = {expected}",
                Difference(expected, observed),
            )


def usable_as_attn_mask(trial: Trial) -> None:
    """Bool or additive floating point."""
    results = trial.call()
    dtype = results["dtype"]
    if results["kind"] == "boolean" or (
        results["kind"] == "additive" and dtype.startswith(("float", "bfloat"))
    ):
        return
    if dtype.startswith(("float", "bfloat")):
        why = "its ones would be added to the scores and hide nothing"
    else:
        why = "nn.MultiheadAttention refuses it"
    raise Violation(
        f"the mask is {dtype} with entries 0 and 1: {why}",
        Difference("bool, or float with 0 and -inf", dtype),
    )


def zeros_and_ones(trial: Trial) -> None:
    """No entry but 0 and 1."""
    raw = trial.call()["raw"]
    trial.holds(np.isin(raw, (0, 1)), raw, "an entry is neither 0 nor 1", "0 or 1")


def is_additive(trial: Trial) -> None:
    """Floating point, and not merely 0 and 1."""
    results = trial.call()
    if results["kind"] != "additive" or not results["dtype"].startswith(("float", "bfloat")):
        raise Violation(
            f"the mask is {results['dtype']} with entries {', '.join(map(number, np.unique(results['raw'])))}",
            Difference("0 and -inf, floating point", results["dtype"]),
        )


def fits_half(trial: Trial) -> None:
    """No finite entry beyond the range of float16."""
    results = trial.call()
    if results["kind"] != "additive":
        raise trial.skip("the mask is not additive")
    raw = results["raw"].astype(np.float64)
    fits = np.isinf(raw) | (np.abs(raw) <= 65504.0)
    trial.holds(fits, raw, "a sentinel does not fit into float16", "-inf, or -65504 and above")


def allowed_is_zero(trial: Trial) -> None:
    """Allowed entries of an additive mask are 0."""
    results = trial.call()
    if results["kind"] != "additive":
        raise trial.skip("the mask is not additive")
    raw, allowed = results["raw"], results["allowed"] == 1
    trial.same(raw, np.zeros_like(raw), "an allowed entry", 1e-12, where=allowed)


def forms_agree(trial: Trial) -> None:
    """Two boolean mask functions, compared as they are."""
    other = trial.partners[0]
    first, second = trial.call(), other.call(trial.inputs)
    if first["kind"] == "additive" or second["kind"] == "additive":
        raise trial.skip("one of the masks is additive")
    opposite = trial.subject.convention("polarity") != other.convention("polarity")
    one, two = first["raw"].astype(bool), second["raw"].astype(bool)
    relation = "the negation of" if opposite else "equal to"
    trial.same(
        one,
        ~two if opposite else two,
        f"the mask is not {relation} that of {other.binding.name}: the entry",
        0.0,
    )


def edge_sizes(trial: Trial) -> None:
    """Lengths 0 and -1: an empty mask, or an error."""
    subject = trial.subject
    assert isinstance(subject, MaskSubject)
    for T in (0, -1):
        inputs = trial.inputs.replaced(T=T)
        try:
            raw = subject.raw(inputs)["raw"]
        except CallFailed as error:
            if error.kind != "exception":
                raise
            continue
        if raw.size:
            raise Violation(
                f"for T = {T} the mask has {raw.size} entries",
                Difference("no entries, or an error", f"shape {list(raw.shape)}"),
            )


def padding_pattern(trial: Trial, ids: bool = False) -> None:
    """Exactly the padded places are blocked."""
    allowed = trial.result("allowed")
    case = trial.case
    from_ids = "ids" in trial.subject.binding.arguments
    if from_ids and (ids or case["place"] == "end"):
        expected = trial.inputs["ids"] != case["pad_id"]
    elif from_ids or ids:
        raise trial.skip("padding at the front needs token ids")
    else:
        expected = np.arange(allowed.shape[1])[None, :] < trial.inputs["lengths"][:, None]
    trial.same(allowed, expected.astype(np.int64), "with 1 for real tokens and 0 for padding, the entry", 0.0)

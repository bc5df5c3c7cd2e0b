"""Properties of attention: weights, masks, scale, gradients, extremes.  Arrays are (N, T, d) and (N, T, S)."""

from __future__ import annotations

import math

import numpy as np

from ..candidates.attention import AttentionSubject
from ..candidates.errors import CallFailed
from ..candidates.masks import MaskSubject
from ..engine.cases import Inputs, build_inputs, normal
from ..engine.oracle import attention as reference_attention
from ..engine.oracle import attention_gradient, effective_mask
from ..engine.trial import Difference, Trial, Violation, Whole

__all__ = [
    "causal_flag",
    "dead_rows",
    "finite_and_normalised",
    "finite_gradient",
    "first_row_is_first_value",
    "gradient_matches",
    "integer_masks",
    "mask_kinds_agree",
    "matches_reference",
    "no_gradient_to_blocked",
    "non_negative",
    "not_filled_with_zero",
    "parts_fit",
    "permutation_of_keys",
    "row_sums",
    "softmax_of_visible",
    "unaffected_by_blocked",
    "uniform_over_visible",
    "within_hull",
    "zero_where_blocked",
]


def _mask(trial: Trial, inputs: Inputs | None = None) -> np.ndarray | None:
    return effective_mask(trial.subject.role.id, inputs or trial.inputs)


def _visible(trial: Trial) -> np.ndarray:
    mask = _mask(trial)
    if mask is not None:
        return mask
    N, T = trial.inputs["query"].shape[:2]
    return np.ones((N, T, trial.inputs["key"].shape[1]), dtype=bool)


def row_sums(trial: Trial, result: str, value: float) -> None:
    """Each row of the weights sums to the value."""
    weights = trial.result(result)
    sums = weights.sum(axis=-1, dtype=np.float64)
    allowed = trial.allowed_for(trial.inputs, values=False)
    trial.drawing = lambda: _rows_off(weights, np.abs(sums - value) > allowed, trial)
    trial.same(sums, np.full_like(sums, value), "the sum of a row of weights", allowed)


def _beside(right: np.ndarray, weights: np.ndarray, trial: Trial) -> Whole:
    """The weights of the first instance in which they are wrong."""
    wrong = ~(np.abs(weights.astype(np.float64) - right) <= trial.allowed_for(trial.inputs, values=False))
    n = int(wrong.any(axis=(1, 2)).argmax())
    return Whole(right[n], weights[n], wrong[n], axes=("query", "key"))


def _rows_off(weights: np.ndarray, wrong: np.ndarray, trial: Trial) -> Whole:
    """The first instance with a row whose sum is wrong, beside the right weights, that row marked."""
    n = int(np.argwhere(wrong)[0][0])
    right = reference_attention(trial.inputs, _visible(trial))["weights"][n]
    off = np.broadcast_to(wrong[n][:, None], weights[n].shape)
    return Whole(right if right.shape == off.shape else None, weights[n], off, axes=("query", "key"))


def non_negative(trial: Trial, result: str) -> None:
    """No entry below zero (NaN is not above it either)."""
    observed = trial.result(result)
    trial.holds(observed >= 0, observed, "a weight is negative or NaN", "0 or more")


def zero_where_blocked(trial: Trial, result: str) -> None:
    """Weights of blocked keys are 0, to 1e-6 for finite sentinels."""
    weights = trial.result(result)
    blocked = ~_visible(trial)
    what = "a blocked key has weight"
    trial.same(weights, np.zeros_like(weights), what, 1e-6, where=blocked)


def not_filled_with_zero(trial: Trial) -> None:
    """The weights are not those of scores that were replaced by 0 where the mask blocks."""
    weights = trial.result("weights")
    visible = _visible(trial)
    if weights.shape != visible.shape or not (np.abs(weights) > 1e-6)[~visible].any():
        return
    query, key = (trial.inputs[name].astype(np.float64) for name in ("query", "key"))
    scores = np.where(visible, query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1]), 0.0)
    filled = np.exp(scores - scores.max(axis=-1, keepdims=True))
    filled /= filled.sum(axis=-1, keepdims=True)
    if np.allclose(weights, filled, atol=1e-5):
        what = "the score of a blocked key was replaced by 0, so that it keeps a weight: the weight"
        trial.same(weights, np.zeros_like(weights), what, 1e-6, where=~visible)


def softmax_of_visible(trial: Trial, result: str) -> None:
    """The visible weights are the softmax of the visible scores alone."""
    visible = _visible(trial)
    expected = reference_attention(trial.inputs, visible)["weights"]
    trial.same(
        trial.result(result),
        expected,
        "the weight",
        trial.allowed_for(trial.inputs, values=False),
        where=visible,
    )


def matches_reference(trial: Trial, results: tuple[str, ...]) -> None:
    """Output (and weights, where they are returned) equal the float64 reference."""
    expected = reference_attention(trial.inputs, _mask(trial))
    observed = trial.call()
    if "weights" in observed and observed["weights"].shape == expected["weights"].shape:
        trial.drawing = lambda: _beside(expected["weights"], observed["weights"], trial)
    for name in results:
        if name in observed:
            allowed = None if name == "output" else trial.allowed_for(trial.inputs, values=False)
            trial.same(observed[name], expected[name], f"the {name}", allowed)


def uniform_over_visible(trial: Trial, result: str) -> None:
    """With equal keys, every visible key has the weight 1 / (number of visible keys)."""
    visible = _visible(trial)
    expected = visible / visible.sum(axis=-1, keepdims=True)
    trial.same(
        trial.result(result),
        expected,
        "with equal keys, the weight",
        trial.allowed_for(trial.inputs, values=False) + 1e-6,
    )


def first_row_is_first_value(trial: Trial) -> None:
    """Under a causal mask the first output is V[0]."""
    trial.same(trial.call()["output"][:, 0], trial.inputs["value"][:, 0], "the first output against V[0]")


def within_hull(trial: Trial) -> None:
    """Each output lies between the smallest and the largest visible value."""
    output = trial.call()["output"].astype(np.float64)
    visible = _visible(trial)[..., None]  # (N, T, S, 1)
    values = trial.inputs["value"].astype(np.float64)[:, None]  # (N, 1, S, dv)
    low = np.where(visible, values, np.inf).min(axis=2)
    high = np.where(visible, values, -np.inf).max(axis=2)
    if output.shape != low.shape:
        raise Violation(f"the shape is {list(output.shape)}, expected {list(low.shape)}")
    allowed = trial.allowed + 1e-6
    inside = (output >= low - allowed) & (output <= high + allowed)
    if not inside.all():
        index = tuple(int(n) for n in np.argwhere(~inside)[0])
        raise Violation(
            f"an output coordinate is {output[index]:.5g}, outside of what its visible values span",
            Difference(
                f"between {low[index]:.5g} and {high[index]:.5g}", output[index[0]].tolist(), index[1:]
            ),
        )


def finite_and_normalised(trial: Trial) -> None:
    """No NaN, no infinity, and rows that are still averages of visible values, with very large scores."""
    output = trial.call()["output"]
    top = float(
        np.abs(trial.inputs["query"] @ trial.inputs["key"].swapaxes(1, 2)).max()
        / np.sqrt(trial.inputs["query"].shape[-1])
    )
    trial.holds(
        np.isfinite(output),
        output,
        f"with scores up to {top:.3g} the output has NaN or infinity",
        "finite numbers",
    )
    ones = np.ones((*trial.inputs["key"].shape[:2], 2), dtype=trial.inputs["value"].dtype)
    sums = trial.changed(value=ones)["output"]
    trial.same(
        sums, np.ones_like(sums), f"with scores up to {top:.3g} the weights of a row sum to: the sum", 1e-3
    )
    if trial.case["regime"] == "blocked leads":
        trial.same(
            output, reference_attention(trial.inputs, _mask(trial))["output"], "the output", trial.allowed
        )


def permutation_of_keys(trial: Trial) -> None:
    """Keys, values and mask columns permuted together."""
    S = trial.inputs["key"].shape[1]
    order = trial.case.rng.permutation(S)
    if (order == np.arange(S)).all():
        order = order[::-1]
    mask = trial.inputs.get("mask")
    changes = {"key": trial.inputs["key"][:, order], "value": trial.inputs["value"][:, order]}
    if mask is not None:
        changes["mask"] = mask[:, :, order]
    turned = trial.changed(**changes)["output"]
    trial.same(turned, trial.call()["output"], f"after permuting the keys by {order.tolist()}, the output")


def unaffected_by_blocked(trial: Trial) -> None:
    """Content at places that no query may see, multiplied and shifted."""
    hidden = np.asarray(~_visible(trial).any(axis=1))  # (N, S): hidden from every query
    per_row = ~hidden.any()
    if per_row:
        _unaffected_row_by_row(trial)
        return
    key, value = trial.inputs["key"].copy(), trial.inputs["value"].copy()
    scores = (
        np.abs(trial.inputs["query"].astype(np.float64)).sum(-1).max()
        * max(1e-3, float(np.abs(key).max()))
        / np.sqrt(key.shape[-1])
    )
    factor = float(min(1000.0, max(1.0, 30.0 / max(scores, 1e-3))))
    key[hidden] = (key[hidden] + 0.3) * round(factor)
    value[hidden] = (value[hidden] + 1.0) * 1000
    trial.shown = {"key": key, "value": value}
    after = trial.changed(key=key, value=value)["output"]
    trial.same(
        after, trial.call()["output"], "after changing what is blocked, the output", trial.allowed + 1e-9
    )


def _unaffected_row_by_row(trial: Trial) -> None:
    """Where each key is seen by some query: change a key and look at the queries that may not see it."""
    visible = _visible(trial)
    before = trial.call()["output"]
    for j in range(visible.shape[2]):
        rows = ~visible[:, :, j]  # (N, T)
        if not rows.any():
            continue
        key, value = trial.inputs["key"].copy(), trial.inputs["value"].copy()
        key[:, j] = -2 * key[:, j] + 1
        value[:, j] = (value[:, j] + 1) * 1000
        after = trial.changed(key=key, value=value)["output"]
        where = np.broadcast_to(rows[..., None], before.shape)
        trial.shown = {"key": key, "value": value}
        changed = trial.inputs.replaced(key=key)
        allowed = max(trial.allowed, trial.allowed_for(changed)) + 1e-9
        trial.same(
            after,
            before,
            f"after changing key {j}, the output of a query that may not see it",
            allowed,
            where,
        )


def _needs_kinds(trial: Trial) -> AttentionSubject:
    subject = trial.subject
    assert isinstance(subject, AttentionSubject)
    return subject


def mask_kinds_agree(trial: Trial) -> None:
    """Every kind of mask that the candidate takes gives the same output."""
    kinds = _needs_kinds(trial).kinds
    if len(kinds) < 2:
        raise trial.skip("the candidate takes one kind of mask")
    first = trial.call(_as_kind(trial, kinds[0]))["output"]
    for kind in kinds[1:]:
        other = trial.call(_as_kind(trial, kind))["output"]
        trial.same(other, first, f"with a mask of kind {kind} instead of {kinds[0]}, the output")


def _as_kind(trial: Trial, kind: str) -> Inputs:
    return Inputs(trial.inputs.case.replaced(mask_kind=kind), trial.inputs)


def integer_masks(trial: Trial) -> None:
    """An integer mask is refused or read, not added."""
    subject = _needs_kinds(trial)
    try:
        observed = trial.call(_as_kind(trial, "integer"))["output"]
    except CallFailed as error:
        if error.kind == "exception":
            return
        raise
    mask = trial.inputs["mask"]
    readings = [mask] if subject.convention("polarity") != "additive" else [mask, ~mask]
    expected = [reference_attention(trial.inputs, reading)["output"] for reading in readings]
    if not any(
        observed.shape == e.shape and np.allclose(observed, e, atol=max(1e-4, trial.allowed))
        for e in expected
    ):
        trial.same(observed, expected[0], "with an integer mask of zeros and ones, the output")


def dead_rows(trial: Trial) -> None:
    """A query without visible keys leaves the others alone and follows the declared policy."""
    mask = trial.inputs["mask"].copy()
    row = trial.case["seed"] % mask.shape[1]
    alive = trial.call()["output"]
    mask[:, row] = False
    policy, how = trial.subject.conventions.get("fully_blocked", ("any", "default"))
    try:
        output = trial.changed(mask=mask)["output"]
    except CallFailed as error:
        if error.kind == "exception" and (how != "declared" or policy == "error"):
            return
        raise
    others = np.ones(output.shape, dtype=bool)
    others[:, row] = False
    trial.shown = {"mask": mask}
    trial.same(
        output, alive, f"with every key hidden from query {row}, the output of another query", where=others
    )
    if how == "declared":
        _policy(trial, policy, output[:, row])


def _policy(trial: Trial, policy: str, row: np.ndarray) -> None:
    if policy == "error":
        raise Violation(
            "a fully blocked row gave a result; an error is declared", Difference("an error", row.tolist())
        )
    if policy == "zeros":
        trial.same(row, np.zeros_like(row), "a fully blocked row (zeros are declared)", 1e-6)
    if policy == "uniform":
        mean = trial.inputs["value"].mean(axis=1)
        trial.same(row, mean, "a fully blocked row (the mean of the values is declared)", 1e-3)
    if policy == "nan":
        trial.holds(np.isnan(row), row, "a fully blocked row is not NaN, as declared", "NaN")


def _gradient(trial: Trial, inputs: Inputs, cotangent: np.ndarray) -> dict[str, np.ndarray]:
    found = _needs_kinds(trial).gradient(inputs, cotangent)
    if found is None:
        raise trial.skip("nothing connects the output with the inputs by a gradient")
    return found


def no_gradient_to_blocked(trial: Trial) -> None:
    """Keys and values that no query may see receive a gradient of 0."""
    hidden = np.asarray(~_visible(trial).any(axis=1))
    if not hidden.any():
        raise trial.skip("nothing is hidden from every query")
    cotangent = normal(trial.case.rng, trial.call()["output"].shape).astype(trial.inputs["value"].dtype)
    gradients = _gradient(trial, trial.inputs, cotangent)
    largest = [float(np.abs(trial.inputs[name]).max(initial=1.0)) for name in ("query", "value")]
    rounding = 1e-6 * float(np.abs(cotangent).max(initial=1.0)) * math.prod(largest)
    for name in ("key", "value"):
        where = np.broadcast_to(hidden[..., None], gradients[name].shape)
        given = gradients[name]
        trial.same(given, np.zeros_like(given), f"the gradient of a blocked {name}", rounding, where)


def gradient_matches(trial: Trial) -> None:
    """Gradients equal those of the float64 reference."""
    cotangent = normal(trial.case.rng, trial.call()["output"].shape)
    gradients = _gradient(trial, trial.inputs, cotangent)
    expected = attention_gradient(trial.inputs, _mask(trial), cotangent)
    size = max(1.0, *(float(np.abs(g).max()) for g in expected.values()))
    for name, gradient in gradients.items():
        trial.same(
            gradient, expected[name], f"the gradient with respect to {name}", trial.allowed * 16 * size
        )


def finite_gradient(trial: Trial) -> None:
    """A row without visible keys leaves the gradient of the other rows finite."""
    mask = trial.inputs["mask"].copy()
    row = trial.case["seed"] % mask.shape[1]
    mask[:, row] = False
    inputs = trial.inputs.replaced(mask=mask)
    try:
        shape = trial.call(inputs)["output"].shape
    except CallFailed as error:
        if error.kind == "exception":
            raise trial.skip("a fully blocked row is refused") from None
        raise
    cotangent = normal(trial.case.rng, shape)
    cotangent[:, row] = 0.0
    for name, gradient in _gradient(trial, inputs, cotangent.astype(inputs["value"].dtype)).items():
        trial.holds(
            np.isfinite(gradient),
            gradient,
            f"with every key hidden from query {row}, the gradient of {name} has NaN",
        )


def causal_flag(trial: Trial) -> None:
    """is_causal=True against the explicit mask."""
    N, T = trial.inputs["query"].shape[:2]
    S = trial.inputs["key"].shape[1]
    bottom = trial.subject.convention("alignment") == "bottom_right"
    if bottom and S < T:
        raise trial.skip("aligned to the lower right, the first rows see nothing")
    mask = np.broadcast_to(np.tri(T, S, S - T if bottom else 0, dtype=bool), (N, T, S))
    try:
        observed = trial.changed(is_causal=True)["output"]
    except CallFailed as error:
        if T != S and error.kind == "exception":
            raise trial.skip("is_causal is refused where T and S differ") from None
        raise
    trial.same(observed, reference_attention(trial.inputs, mask)["output"], "with is_causal, the output")
    if not trial.subject.has("mask") or bottom:
        return
    given = trial.case.rng.random((T, S)) < 0.5
    given[:, 0] = True
    own = np.broadcast_to(given, (N, T, S)).copy()
    try:
        both = trial.changed(is_causal=True, mask=own)["output"]
    except CallFailed as error:
        if error.kind == "exception":
            return  # the hint together with a mask may be refused
        raise
    expected = reference_attention(trial.inputs, own & mask)["output"]
    trial.same(both, expected, "with is_causal and a mask of its own, which must both hold, the output")


def parts_fit(trial: Trial, mask: str) -> None:
    """The candidate's mask in the candidate's attention."""
    subject, partner = _needs_kinds(trial), trial.partners[0]
    if mask == "causal":
        case = trial.case.replaced(S=trial.case["T"])
        inputs = build_inputs(subject.role, case)
        own = partner.call(Inputs(case, {"T": case["T"]}))
        allowed = np.broadcast_to(np.tri(case["T"], dtype=bool), (len(inputs["query"]), case["T"], case["T"]))
    else:
        case = trial.case
        inputs = trial.inputs
        padding = _padding_inputs(inputs, case)
        own = partner.call(padding)
        allowed = padding["allowed"]
    trial.inputs = inputs.replaced(mask=allowed.copy())
    expected = reference_attention(inputs, allowed)["output"]
    assert isinstance(partner, MaskSubject)
    observed = subject.call_with_mask(trial.inputs, own, partner)
    trial.same(observed, expected, f"with the mask of {partner.binding.name}, the output")


def _padding_inputs(inputs: Inputs, case: object) -> Inputs:
    """Lengths and ids that say what the case's padding mask says, per row of the batch."""
    B, h, S = inputs.case["B"], inputs.case["h"], inputs.case["S"]
    rng = inputs.case.rng
    real = rng.integers(1, max(2, S), size=B).astype(np.int64)
    real[int(rng.integers(B))] = S
    ids = np.where(np.arange(S)[None] < real[:, None], 7, 0).astype(np.int64)
    T = inputs.case["T"]
    rows = np.arange(S)[None, :] < real[:, None]
    allowed = np.broadcast_to(np.repeat(rows, h, axis=0)[:, None, :], (B * h, T, S))
    return Inputs(inputs.case, {"lengths": real, "ids": ids, "S": S, "pad_id": 0, "allowed": allowed})

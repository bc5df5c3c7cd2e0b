"""Properties of layers: PyTorch's boolean semantics in multi-head attention."""

from __future__ import annotations

import numpy as np

from ..candidates.errors import CallFailed
from ..candidates.heads import MultiheadSubject
from ..engine.cases import Inputs, change, normal
from ..engine.oracle import attention as reference_attention
from ..engine.trial import Difference, Trial, Violation

__all__ = [
    "additive_equals_boolean",
    "averaged_weights",
    "blocks",
    "causal_hint",
    "mask_shapes_agree",
    "negated_masks_agree",
    "ones_and_zeros_are_added",
    "refuses_integer_masks",
]

SAME = 1e-9  # layers are run in float64 where they can be
LOOSE = 2e-5


def _allowed(trial: Trial) -> float:
    return SAME if getattr(trial.subject, "double", False) else LOOSE


def blocked_by(trial: Trial, argument: str) -> np.ndarray:
    """The mask as PyTorch reads it, True = blocked: (T, S), or (B, S) for key_padding_mask, (B, T, S) for both."""
    case = trial.case
    if argument == "both":
        return blocked_by(trial, "attn_mask")[None] | blocked_by(trial, "key_padding_mask")[:, None, :]
    if argument == "attn_mask":
        return ~trial.inputs["mask"][0]
    real = np.array([1 + (case["seed"] + b) % max(1, case["S"] - 1) for b in range(case["B"])])
    return np.arange(case["S"])[None, :] >= real[:, None]


def blocks(trial: Trial, argument: str, additive: bool = False) -> None:
    """Content where the mask is True (or -inf) does not matter, and has no weight; content elsewhere matters."""
    mask = blocked_by(trial, argument)
    # Small scores, so that no visible key has a weight too small to be seen.
    gentle = {name: trial.inputs[name] * 0.3 for name in ("query", "key")}
    given = {argument: _additive(mask) if additive else mask}
    if argument == "both":
        given = {name: blocked_by(trial, name) for name in ("attn_mask", "key_padding_mask")}
    inputs = trial.inputs.replaced(**given, **gentle)
    before = trial.call(inputs)
    rng = trial.case.rng
    rows = mask[:, None, :] if argument == "key_padding_mask" else mask  # for (B, T, S)
    said = "-inf" if additive else "True"
    blocked = np.broadcast_to(rows, (trial.case["B"], trial.case["T"], trial.case["S"]))
    if blocked.all(axis=2).any():
        raise trial.skip("a query sees nothing")
    for j in range(trial.case["S"]):
        key, value = inputs["key"].copy(), inputs["value"].copy()
        key[:, j] += normal(rng, key[:, j].shape, 0.5)
        value[:, j] += change(rng, value[:, j].shape, 3.0, 1.0)
        after = trial.call(inputs.replaced(key=key, value=value))
        where = np.broadcast_to(blocked[:, :, j, None], before["output"].shape)
        what = f"after changing key {j}, the output of a query for which {argument} is {said} there"
        trial.shown = given
        trial.same(after["output"], before["output"], what, _allowed(trial), where)
        moved = np.abs(after["output"] - before["output"]).max(axis=-1)
        if (~blocked[:, :, j] & ~(moved > 1e-7)).any():
            b, i = (int(n) for n in np.argwhere(~blocked[:, :, j] & ~(moved > 1e-7))[0])
            raise Violation(
                f"{argument} does not block for query {i} and key {j}, but changing that key changed nothing",
                Difference("a change", float(moved[b, i]), (i, j)),
            )
    weights = before.get("weights")
    if weights is not None and weights.shape == blocked.shape:
        trial.same(weights, np.zeros_like(weights), "the weight of a blocked key", 1e-6, blocked)


def _additive(mask: np.ndarray) -> np.ndarray:
    return np.where(mask, -np.inf, 0.0)


def additive_equals_boolean(trial: Trial, argument: str) -> None:
    """Float with -inf against boolean."""
    mask = blocked_by(trial, argument)
    boolean = trial.changed(**{argument: mask})["output"]
    try:
        additive = trial.changed(**{argument: _additive(mask)})["output"]
    except CallFailed as error:
        if error.kind == "exception":
            raise trial.skip("float masks are refused") from None
        raise
    trial.same(additive, boolean, f"with the float form of {argument}, the output", _allowed(trial))


def mask_shapes_agree(trial: Trial) -> None:
    """(T, S) against (B·h, T, S); then a mask of its own for every head."""
    mask, case = blocked_by(trial, "attn_mask"), trial.case
    B, h, T, S = case["B"], case["h"], case["T"], case["S"]
    shared = trial.changed(attn_mask=mask)["output"]
    try:
        repeated = trial.changed(attn_mask=np.repeat(mask[None], B * h, axis=0))["output"]
    except CallFailed as error:
        if error.kind == "exception":
            raise trial.skip("three-dimensional masks are refused") from None
        raise
    trial.same(repeated, shared, "with the mask repeated to (B·h, T, S), the output", _allowed(trial))
    own = case.rng.random((B * h, T, S)) < 0.5
    own[:, np.arange(T), case.rng.integers(S, size=T)] = False
    weights = trial.changed(attn_mask=own, average_attn_weights=False, need_weights=True).get("weights")
    if weights is None or weights.shape != (B, h, T, S):
        raise trial.skip("weights of single heads are not returned")
    blocked = own.reshape(B, h, T, S)
    what = "with masks of their own per head, the weight of a blocked key [batch, head, query, key]"
    trial.same(weights, np.zeros_like(weights), what, 1e-6, blocked)
    trial.holds(
        (weights > 0) | blocked, weights, "with masks of their own per head, a visible key has no weight"
    )


def averaged_weights(trial: Trial) -> None:
    """(B, T, S), the mean over heads of (B, h, T, S)."""
    case = trial.case
    single = trial.changed(average_attn_weights=False, need_weights=True).get("weights")
    mean = trial.changed(need_weights=True).get("weights")
    expected = {
        "per head": (case["B"], case["h"], case["T"], case["S"]),
        "averaged": (case["B"], case["T"], case["S"]),
    }
    for name, weights in (("per head", single), ("averaged", mean)):
        if weights is None or weights.shape != expected[name]:
            found = None if weights is None else list(weights.shape)
            raise Violation(
                f"weights {name} have shape {found}, expected {list(expected[name])}",
                Difference(list(expected[name]), found),
            )
    assert single is not None
    assert mean is not None
    trial.same(mean, single.mean(axis=1), "the averaged weight", LOOSE)
    trial.same(single.sum(axis=-1), np.ones(single.shape[:-1]), "the sum of a row of weights", LOOSE)


def refuses_integer_masks(trial: Trial, argument: str) -> None:
    """uint8 and int64 raise an error."""
    mask = blocked_by(trial, argument)
    for dtype in ("uint8", "int64"):
        try:
            trial.changed(**{argument: mask.astype(dtype)})
        except CallFailed as error:
            if error.kind == "exception":
                continue
            raise
        raise Violation(
            f"{argument} of dtype {dtype} was taken without an error", Difference("an error", "a result")
        )


def ones_and_zeros_are_added(trial: Trial) -> None:
    """A float mask M of ones and zeros turns weights w into w·e^M, renormalised."""
    M = blocked_by(trial, "attn_mask").astype(np.float64)
    options = {"need_weights": True, "average_attn_weights": False}
    plain = trial.changed(**options).get("weights")
    added = trial.changed(attn_mask=M, **options).get("weights")
    if plain is None or added is None or plain.ndim != 4 or added.shape != plain.shape:
        raise trial.skip("weights of single heads are not returned")
    grown = plain * np.exp(M)
    trial.same(
        added,
        grown / grown.sum(axis=-1, keepdims=True),
        "with ones and zeros as attn_mask, the weight",
        LOOSE,
    )


def negated_masks_agree(trial: Trial) -> None:
    """Identity projections: the layer equals attention with the negated mask, head by head."""
    subject, case = trial.subject, trial.case
    assert isinstance(subject, MultiheadSubject)
    identity = subject.with_identity(case)
    if identity is None:
        raise trial.skip("its projections are not known by PyTorch's parameter names")
    mask = blocked_by(trial, "attn_mask")
    output = identity.call(trial.inputs.replaced(attn_mask=mask))["output"]
    B, h, d, T, S = (case[name] for name in ("B", "h", "d", "T", "S"))
    heads = {}
    for name, n in (("query", T), ("key", S), ("value", S)):
        heads[name] = trial.inputs[name].reshape(B, n, h, d).swapaxes(1, 2).reshape(B * h, n, d)
    allowed = np.broadcast_to(~mask, (B * h, T, S))
    expected = reference_attention(Inputs(case, heads), allowed)["output"]
    joined = expected.reshape(B, h, T, d).swapaxes(1, 2).reshape(B, T, h * d)
    subject.last_calls = ()  # the projections were set from outside; no single call shows that
    trial.same(
        output,
        joined,
        "with identity projections, the output against attention with the negated mask",
        max(_allowed(trial), 1e-6),
    )


def causal_hint(trial: Trial) -> None:
    """The hint beside the mask changes nothing; alone it masks or is refused."""
    T = trial.case["T"]
    inputs = trial.inputs
    length = min(T, inputs["key"].shape[1])
    square = inputs.replaced(**{n: inputs[n][:, :length] for n in ("query", "key", "value")})
    mask = ~np.tri(length, dtype=bool)
    expected = trial.call(square.replaced(attn_mask=mask))["output"]
    hinted = square.replaced(attn_mask=mask, is_causal=True, need_weights=False)
    trial.same(trial.call(hinted)["output"], expected, "with the hint beside its mask, the output", LOOSE)
    try:
        alone = trial.call(square.replaced(is_causal=True, need_weights=False))["output"]
    except CallFailed as error:
        if error.kind == "exception":
            return
        raise
    trial.same(alone, expected, "with the hint and no mask, the output", LOOSE)

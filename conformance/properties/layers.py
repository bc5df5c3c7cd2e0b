"""Properties of layers with weights: shapes, masks, memory, positions, norms, dropout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..candidates.blocks import BlockSubject
from ..candidates.errors import CallFailed
from ..candidates.layers import LayerSubject
from ..engine.cases import Case, Inputs, change, normal
from ..engine.trial import Difference, Trial, Violation

__all__ = [
    "drops_out_in_training",
    "hides_padding",
    "invariant_to_order_of_memory",
    "keeps_norm",
    "layer_norm",
    "layer_shape",
    "layer_weights",
    "lone_memory_row",
    "masked_layer",
    "no_triangle_over_memory",
    "positions_stay_apart",
    "refuses_other_batch",
    "residual",
    "row_by_row",
]


SAME = 1e-9
LOOSE = 2e-5


def layer_of(trial: Trial) -> LayerSubject:
    """The layer of a trial."""
    assert isinstance(trial.subject, LayerSubject)
    return trial.subject


def allowed_for(trial: Trial) -> float:
    """The error allowed between two outputs of one layer: it runs in float64 where it can."""
    return SAME if layer_of(trial).double else LOOSE


def weights_of(trial: Trial, case: Case | None = None, repeated: bool = False) -> list[dict[str, Any]]:
    """The weights of an object that nobody called."""
    other = layer_of(trial).apart("counted")
    return other.weights_of(trial.case if case is None else case, repeated)


# shapes and weights


def layer_shape(trial: Trial) -> None:
    """The output has the shape of the first sequence."""
    first = layer_of(trial).sequences[0]
    expected, observed = trial.inputs[first].shape, trial.call()["output"].shape
    if observed != expected:
        raise Violation(
            f"the shape is {list(observed)}, expected {list(expected)}",
            Difference(str(list(expected)), str(list(observed))),
        )


def _given(trial: Trial) -> Inputs:
    """The case's inputs with its mask, where the layer takes one."""
    inputs = trial.inputs
    if inputs.get("mask") is not None and layer_of(trial).has("mask"):
        return inputs.replaced(allowed=inputs["mask"])
    return inputs


def layer_weights(trial: Trial) -> None:
    """(B, h, T, S), or (B, T, S) averaged; rows sum to 1, no entry below 0, and 0 where blocked."""
    causal = bool(getattr(layer_of(trial), "causal", False))
    inputs = trial.inputs if causal else _given(trial)
    weights = trial.call(inputs).get("weights")
    case = trial.case
    T = inputs[layer_of(trial).sequences[0]].shape[1]
    S = inputs["key"].shape[1]
    expected = (
        (case["B"], T, S) if getattr(layer_of(trial), "averaged", False) else (case["B"], case["h"], T, S)
    )
    if weights is None or weights.shape != expected:
        found = None if weights is None else list(weights.shape)
        raise Violation(
            f"its weights have the shape {found}, expected {list(expected)}",
            Difference(list(expected), found),
        )
    trial.same(weights.sum(axis=-1), np.ones(weights.shape[:-1]), "the sum of a row of weights", LOOSE)
    trial.holds(weights >= -1e-7, weights, "a weight is below zero", "at least 0")
    allowed = inputs.get("allowed")
    if causal:
        allowed = np.broadcast_to(np.tri(T, S, dtype=bool), (case["B"], T, S))
    if allowed is not None:
        blocked = np.broadcast_to(~allowed if weights.ndim == 3 else ~allowed[:, None], weights.shape)
        trial.same(weights, np.zeros(weights.shape), "the weight of a blocked key", 1e-6, blocked)


def masked_layer(trial: Trial) -> None:
    """What the mask hides has no effect; what it shows has one."""
    inputs = _given(trial)
    allowed = inputs.get("allowed")
    if allowed is None:
        raise trial.skip("it takes no mask")
    # Small inputs, so that no visible key has a weight too small to be seen.
    subject = layer_of(trial)
    one = getattr(subject, "form", "") == "self"
    gentle = {name: inputs[name] * 0.4 for name in ("query", "key")}
    inputs = subject.default(inputs.replaced(**gentle))
    before = trial.call(inputs)["output"]
    if getattr(subject, "causal", False):
        allowed = allowed & np.tri(allowed.shape[1], dtype=bool)
    sees = allowed.any(axis=2)  # a query that sees nothing may give anything
    rng = trial.case.rng
    for j in range(inputs["key"].shape[1]):
        changed = {}
        for name in ("query",) if one else ("key", "value"):
            values = inputs[name].copy()
            values[:, j] += change(rng, values[:, j].shape, 1.0, 0.3)
            changed[name] = values
        after = trial.call(subject.default(inputs.replaced(**changed)))["output"]
        hidden = ~allowed[:, :, j] & sees
        if one:
            hidden = hidden & (np.arange(hidden.shape[1]) != j)[None, :]
        where = np.broadcast_to(hidden[:, :, None], before.shape)
        trial.shown = {"mask": allowed}
        what = f"after a change at position {j}, the output of a query that may not see it"
        trial.same(after, before, what, allowed_for(trial), where)
        moved = np.abs(after - before).max(axis=-1)
        silent = allowed[:, :, j] & ~(moved > 1e-7)
        if silent.any():
            b, i = (int(n) for n in np.argwhere(silent)[0])
            raise Violation(
                f"query {i} may see position {j}, but changing what stands there changed nothing",
                Difference("a change", float(moved[b, i]), (i, j)),
            )


def positions_stay_apart(trial: Trial) -> None:
    """Every query sees its own position alone; then no other position may touch its output."""
    inputs = trial.inputs
    subject = layer_of(trial)
    B, T = inputs["query"].shape[:2]
    if inputs["key"].shape[1] != T:
        raise trial.skip("this looks at sequences of equal length")
    rng = trial.case.rng
    one = getattr(subject, "form", "") == "self"
    if not one:  # queries do not see each other, whatever the keys
        plain = trial.call(inputs)["output"]
        query = inputs["query"].copy()
        query[:, -1] += change(rng, query[:, -1].shape, 2.0, 0.3)
        after = trial.call(inputs.replaced(query=query))["output"]
        where = np.broadcast_to((np.arange(T) != T - 1)[None, :, None], plain.shape)
        trial.same(
            after, plain, f"query {T - 1} was changed: the output elsewhere", allowed_for(trial), where
        )
    inputs = inputs.replaced(allowed=np.broadcast_to(np.eye(T, dtype=bool), (B, T, T)).copy())
    before = trial.call(inputs)["output"]
    for j in range(T):
        changed = {}
        for name in ("query",) if one else ("query", "key", "value"):
            values = inputs[name].copy()
            values[:, j] += change(rng, values[:, j].shape, 2.0, 0.3)
            changed[name] = values
        after = trial.call(subject.default(inputs.replaced(**changed)))["output"]
        where = np.broadcast_to((np.arange(T) != j)[None, :, None], before.shape)
        what = f"each query sees its own position alone, and position {j} was changed: the output elsewhere"
        trial.same(after, before, what, allowed_for(trial), where)


# cross-attention


def _memory_name(trial: Trial) -> str:
    return "memory" if "memory" in layer_of(trial).sequences else "key"


def _with_memory(trial: Trial, memory: np.ndarray, inputs: Inputs | None = None) -> Inputs:
    inputs = trial.inputs if inputs is None else inputs
    if _memory_name(trial) == "memory":
        return inputs.replaced(memory=memory)
    return inputs.replaced(key=memory, value=memory)


def no_triangle_over_memory(trial: Trial) -> None:
    """Every row of memory reaches every output row."""
    before = trial.call()["output"]
    rng = trial.case.rng
    name = _memory_name(trial)
    for j in range(trial.inputs[name].shape[1]):
        memory = trial.inputs[name].copy()
        memory[:, j] += change(rng, memory[:, j].shape, 2.0, 0.3)
        moved = np.abs(trial.call(_with_memory(trial, memory))["output"] - before).max(axis=-1)  # (B, T)
        if not (moved > 1e-9).all():
            b, i = (int(n) for n in np.argwhere(~(moved > 1e-9))[0])
            raise Violation(
                f"memory row {j} was changed, but output {i} of batch row {b} did not change",
                Difference("a change", float(moved[b, i]), (i, j)),
            )


def invariant_to_order_of_memory(trial: Trial) -> None:
    """Rows of memory in another order: the same output."""
    name = _memory_name(trial)
    memory = trial.inputs[name]
    order = trial.case.rng.permutation(memory.shape[1])
    before = trial.call()["output"]
    after = trial.call(_with_memory(trial, memory[:, order].copy()))["output"]
    trial.same(after, before, "with the rows of memory in another order, the output", 10 * allowed_for(trial))


def lone_memory_row(trial: Trial) -> None:
    """With one row of memory every query gets the same, whatever it asks."""
    name = _memory_name(trial)
    memory = trial.inputs[name][:, :1].copy()
    output = trial.call(_with_memory(trial, memory))["output"]
    expected = np.broadcast_to(output[:, :1], output.shape)
    trial.same(output, expected, "with one row of memory, the output beside that of the first query", 1e-6)


def refuses_other_batch(trial: Trial) -> None:
    """Memory of another batch size raises an error."""
    name = _memory_name(trial)
    memory = trial.inputs[name]
    B = memory.shape[0]
    if B < 2:
        raise trial.skip("one row is no batch")
    other = np.concatenate([memory, memory])[: B + 1]
    try:
        trial.call(_with_memory(trial, other))
    except CallFailed as error:
        if error.kind == "exception":
            return
        raise
    raise Violation(
        f"a memory of {B + 1} rows was taken for a target of {B}", Difference("an error", "a result")
    )


def hides_padding(trial: Trial, of: str) -> None:
    """Content at padding has no effect on real positions, content elsewhere has."""
    inputs = trial.inputs
    name = {"memory": _memory_name(trial), "target": "x"}[of]
    length = inputs[name].shape[1]
    if length < 2:
        raise trial.skip("one position is not padded")
    B = len(inputs[name])
    real = np.array([1 + (trial.case["seed"] + b) % (length - 1) for b in range(B)])
    hide = np.arange(length)[None, :] >= real[:, None]
    if of == "target" and length > 2:
        hide[:, 1] = True  # with a triangle nothing looks back at a tail: some padding has to lie before
        hide[:, -1] = False
    key = {"memory": "hide_memory", "target": "hide"}[of]
    if name == "key":
        T = inputs["query"].shape[1]
        inputs = inputs.replaced(allowed=np.repeat(~hide[:, None, :], T, axis=1))
    else:
        inputs = inputs.replaced(**{key: hide})
    before = trial.call(inputs)["output"]
    values = inputs[name].copy()
    values[hide] += change(trial.case.rng, values[hide].shape, 3.0, 1.0)
    changed = _with_memory(trial, values, inputs) if of == "memory" else inputs.replaced(x=values)
    after = trial.call(changed)["output"]
    where = np.ones(before.shape, dtype=bool)
    if of == "target":
        where = np.broadcast_to(~hide[:, :, None], before.shape)
    trial.shown = {"padding": hide}
    trial.same(
        after, before, f"after a change of what is padding in the {of}, the output", allowed_for(trial), where
    )
    if of == "target" and getattr(layer_of(trial), "triangle", False) and layer_of(trial).has("causal"):
        _no_future_beside_padding(trial, inputs, before, hide)
    values = inputs[name].copy()
    values[:, 0] += change(trial.case.rng, values[:, 0].shape, 2.0, 0.5)
    changed = _with_memory(trial, values, inputs) if of == "memory" else inputs.replaced(x=values)
    # Rows of padded queries may hold anything.
    moved = np.abs(trial.call(changed)["output"] - before).max(axis=(1, 2), where=where, initial=0.0)
    if not (moved > 1e-9).all():
        b = int(np.argmin(moved))
        raise Violation(
            f"position 0 of the {of} is no padding in row {b}, but changing it changed nothing",
            Difference("a change", float(moved[b])),
        )


def _no_future_beside_padding(trial: Trial, inputs: Inputs, before: np.ndarray, hide: np.ndarray) -> None:
    """The causal triangle holds beside the mask of padding."""
    T = before.shape[1]
    x = inputs["x"].copy()
    x[:, -1] += change(trial.case.rng, x[:, -1].shape, 3.0, 1.0)
    real = np.zeros_like(hide)
    after = trial.call(inputs.replaced(x=x, hide=real))["output"]
    plain = trial.call(inputs.replaced(hide=real))["output"]
    where = np.broadcast_to((np.arange(T) < T - 1)[None, :, None], before.shape)
    what = "given a mask of padding that hides nothing, after a change of the last position, the output before it"
    trial.same(after, plain, what, allowed_for(trial), where)


# norms, residuals, rows


def row_by_row(trial: Trial) -> None:
    """Every position by itself: a change at one leaves the others, a permutation permutes."""
    name = layer_of(trial).sequences[0]
    x = trial.inputs[name]
    T = x.shape[1]
    before = trial.call()["output"]
    j = T // 2
    values = x.copy()
    values[:, j] += change(trial.case.rng, values[:, j].shape, 2.0, 0.5)
    after = trial.changed(**{name: values})["output"]
    where = np.broadcast_to((np.arange(T) != j)[None, :, None], before.shape)
    trial.same(
        after, before, f"after a change at position {j}, the output elsewhere", allowed_for(trial), where
    )
    order = np.roll(np.arange(T), 1)
    turned = trial.changed(**{name: x[:, order].copy()})["output"]
    trial.same(
        turned, before[:, order], "with the positions in another order, the output", allowed_for(trial)
    )


def residual(trial: Trial) -> None:
    """All weights and biases at zero: pre-norm the block is the identity, post-norm a chain of norms."""
    subject = layer_of(trial)
    assert isinstance(subject, BlockSubject)
    other = subject.silent(trial.case)
    if other is None:
        raise trial.skip("its parameters cannot be seen")
    x = trial.inputs["x"]
    observed = other.call(trial.inputs)["output"]
    subject.last_calls = ()
    if subject.convention("norm") == "pre":
        trial.same(observed, x, "with all weights at zero, the output beside the input", 1e-5)
        return
    mean = x.mean(axis=-1, keepdims=True)
    spread = np.sqrt(_variance(subject, x) + 1e-5)
    expected = (x - mean) / spread
    if subject.asks_for_rms and subject.conventions.get("norm_kind") != ("layer", "declared"):
        other_norm = x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + 1e-5)
        if observed.shape == x.shape and np.allclose(observed, other_norm, atol=1e-3):
            expected = other_norm
    trial.same(observed, expected, "with all weights at zero, the output beside the normed input", 1e-3)


def keeps_norm(trial: Trial) -> None:
    """At initialisation every row of a post-norm block's output has norm √d."""
    output = trial.call()["output"]
    width = output.shape[-1]
    norms = np.sqrt((output.astype(np.float64) ** 2).sum(axis=-1))
    trial.same(norms, np.full(norms.shape, width**0.5), f"the norm of an output row of width {width}", 2e-3)


def _variance(subject: LayerSubject, x: np.ndarray) -> np.ndarray:
    """σ² of each row: the sum of squares over d, or over d - 1 where that is declared."""
    return x.var(axis=-1, keepdims=True, ddof=int(subject.convention("variance") == "unbiased"))


def layer_norm(trial: Trial) -> None:
    """(x − μ) / √(σ² + ε), with the biased variance unless it is declared; rows of equal entries stay finite."""
    x = trial.inputs["x"].astype(np.float64)
    if trial.case.get("rows") == "equal":
        x = np.broadcast_to(x[..., :1], x.shape).copy()
    inputs = trial.inputs.replaced(x=x.astype(trial.inputs["x"].dtype))
    observed = trial.call(inputs)["output"]
    mean = x.mean(axis=-1, keepdims=True)
    if trial.case.get("rows") == "equal":
        trial.same(observed, np.zeros(x.shape), "for a row of equal entries, the output", 1e-4)
        return
    variance = np.maximum(_variance(layer_of(trial), x), 1e-12)  # two equal entries by chance
    low, high = ((x - mean) / np.sqrt(variance + eps) for eps in (0.0, 1.1e-3))
    expected = (low + high) / 2
    allowed = np.abs(high - low) / 2 + 1e-4
    trial.same(observed, expected, "the normed entry", allowed)
    loaded = _with_gain_and_bias(trial)
    if loaded is not None:
        other, gain, bias = loaded
        observed = other.call(inputs)["output"]
        what = "with another gain and bias, the normed entry"
        trial.same(observed, expected * gain + bias, what, allowed * np.abs(gain) + 1e-4)


def _with_gain_and_bias(trial: Trial) -> tuple[LayerSubject, np.ndarray, np.ndarray] | None:
    """The norm with a gain and a bias of its own; None where they cannot be told by what they start with."""
    subject, rng = layer_of(trial), trial.case.rng
    other = subject.apart("trained")
    built = other.object_for(trial.case)
    width = trial.case["h"] * trial.case["d"]
    new = {"gain": normal(rng, (width,), 0.3) + 1.0, "bias": normal(rng, (width,), 0.5)}
    values = {}
    for item in weights_of(trial):
        value = item["value"].values
        kind = {1.0: "gain", 0.0: "bias"}.get(float(value.flat[0])) if value.size == width else None
        if kind is None or not (value == value.flat[0]).all():
            return None
        values[kind] = (item["name"], new[kind].reshape(value.shape))
    if not values:
        return None
    subject.session.load(built, {name: subject.array(value) for name, value in values.values()})
    subject.last_calls = ()
    gain = new["gain"] if "gain" in values else np.ones(width)
    return other, gain, new["bias"] if "bias" in values else np.zeros(width)


def drops_out_in_training(trial: Trial) -> None:
    """Built with dropout 0.5 and in training mode, two calls differ."""
    dropping = trial.subject.with_dropout(0.5)
    if dropping is None:
        raise trial.skip("it has no dropout that can be set")
    calls = [replace(call, train=True) for call in dropping.calls_for(trial.inputs)]
    first = dropping.read(dropping.send(calls), trial.inputs)["output"]
    second = dropping.read(dropping.send(calls), trial.inputs)["output"]
    if first.shape == second.shape and np.array_equal(first, second):
        raise Violation(
            "built with dropout 0.5 and in training mode, two calls gave the same output",
            Difference("different outputs", "equal ones"),
        )

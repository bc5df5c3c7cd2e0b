"""Properties of layers with weights: recomputed with their own weights, counted, zeroed, masked, permuted."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ...spec import Formula
from ..candidates.errors import CallFailed
from ..candidates.layers import BlockSubject, LayerSubject, is_ones
from ..candidates.models import ModelSubject
from ..engine import blueprints
from ..engine.cases import Case, Inputs, OutOfDomain, Unseen, normal
from ..engine.matching import Departs, Matched, Undetermined, rule
from ..engine.trial import Difference, Trial, Violation, focus

__all__ = [
    "divides_or_refuses",
    "drops_out_in_training",
    "heads_change_output",
    "hides_padding",
    "invariant_to_order_of_memory",
    "keeps_norm",
    "layer_norm",
    "layer_saved_and_loaded",
    "layer_shape",
    "layer_weights",
    "lone_memory_row",
    "masked_layer",
    "no_triangle_over_memory",
    "number_of_parameters",
    "own_norms",
    "own_parameters",
    "positions_stay_apart",
    "recomputed",
    "recomputed_stack",
    "refuses_other_batch",
    "residual",
    "row_by_row",
]

SAME = 1e-9
LOOSE = 2e-5


def _layer(trial: Trial) -> LayerSubject:
    assert isinstance(trial.subject, LayerSubject)
    return trial.subject


def _allowed(trial: Trial) -> float:
    return SAME if _layer(trial).double else LOOSE


# recomputed with the candidate's own weights


def matching(trial: Trial) -> Matched:
    """The layer beside a reference with its weights; found once for each size, and told again where it failed."""
    subject = _layer(trial)
    key = (
        trial.case["h"],
        trial.case["d"],
        subject.session.generation,
    )  # a new worker has weights of its own
    found = subject.matches.get(key)
    if found is None:
        try:
            found = blueprints.matched(subject, trial.case)
            for name, value in found.blueprint.conventions.items():
                if subject.conventions.get(name, ("", ""))[1] != "declared":
                    subject.probed(name, value)
        except (Departs, Undetermined, CallFailed, OutOfDomain) as error:
            found = error
        subject.matches[key] = found
    if isinstance(found, Departs):
        difference = None
        if found.expected is not None and found.observed is not None:
            difference = _difference(found.expected, found.observed)
        raise Violation(found.what, difference)
    if isinstance(found, Undetermined):
        raise Unseen(f"its weights cannot be carried over to the reference: {found}")
    if isinstance(found, CallFailed | OutOfDomain):
        raise found
    return found


def recomputed_stack(trial: Trial) -> None:
    """A decoder stack against the reference with the same weights, in whatever form it has.

    Stacks differ in more than can be listed: one that follows no known form is left to other claims, and
    only one that follows a known mistake fails.
    """
    subject = trial.subject
    assert isinstance(subject, ModelSubject)
    if subject.takes != "ids" or not subject.batched or subject.form not in ("(B, T, V)", "(B, T, d)"):
        raise trial.skip("it is no stack from ids to a score for every word at every position")
    if not (subject.settable("V") and subject.settable("n_layers")) or subject.form == "(B, T, d)":
        raise trial.skip("its vocabulary or its number of layers cannot be set")
    key = subject.session.generation
    found = subject.matches.get((key,))
    if found is None:
        try:
            found = blueprints.matched_stack(subject, trial.case)
        except (Departs, Undetermined, CallFailed) as error:
            found = error
        subject.matches[(key,)] = found
    if isinstance(found, Departs) and found.known:
        raise Violation(found.what)
    if isinstance(found, Departs | Undetermined):
        raise trial.skip(f"it follows none of the forms that are known here: {found}")
    if isinstance(found, CallFailed):
        raise found
    inputs = trial.inputs
    observed = subject.variation(variant="weights", loud=False).run(inputs)["output"]
    expected = found.expected(inputs)
    allowed = (2e-4 if found.single else 1e-5) * max(1.0, float(np.abs(expected).max()))
    subject.last_calls = ()
    trial.same(observed, expected, "with its own weights, the score", allowed)


def _difference(expected: np.ndarray, observed: np.ndarray) -> Difference:
    if expected.shape != observed.shape:
        return Difference(f"shape {list(expected.shape)}", f"shape {list(observed.shape)}")
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(expected - observed) <= 1e-6)
    index = tuple(int(n) for n in np.argwhere(wrong)[0]) if wrong.any() else (0,) * expected.ndim
    shown, inner = focus(observed, index)
    return Difference(focus(expected, index)[0], shown, inner)


def recomputed(trial: Trial) -> None:
    """Output, weights and gradients against the reference with the same weights."""
    subject = _layer(trial)
    found = matching(trial)
    own = subject.apart("weights")
    inputs = subject.default(trial.inputs)
    if "mask" in inputs and inputs["mask"] is not None and subject.has("mask"):
        inputs = inputs.replaced(allowed=inputs["mask"])
    observed = own.run(inputs)
    expected = found.expected(inputs)
    scale = max(1.0, float(np.abs(expected).max()))
    allowed = (2e-4 if found.single else 1e-5) * scale
    subject.last_calls = ()  # its weights were set from outside; no call alone shows that
    trial.same(observed["output"], expected, "with its own weights, the output", allowed)
    if "weights" in observed:
        _same_weights(trial, observed["weights"], found, inputs, allowed)
    if subject.has("gradient") and not subject.unbatched:
        _same_gradients(trial, found, own, inputs, expected.shape, allowed)


def _same_weights(trial: Trial, observed: np.ndarray, found: Matched, inputs: Inputs, allowed: float) -> None:
    """Weights of heads in any order, or averaged over them."""
    expected = found.weights(inputs)
    if expected is None:
        return
    if observed.ndim == expected.ndim - 1:
        trial.same(observed, expected.mean(axis=1), "with its own weights, the averaged weight", allowed)
        return
    if observed.shape != expected.shape:
        return  # the claim on their shape tells that
    free = list(range(expected.shape[1]))
    for head in range(expected.shape[1]):
        errors = {n: float(np.abs(observed[:, head] - expected[:, n]).max()) for n in free}
        nearest = min(errors, key=lambda n: errors[n])
        trial.same(
            observed[:, head],
            expected[:, nearest],
            f"with its own weights, the attention weight of head {head}",
            allowed,
        )
        free.remove(nearest)


def _same_gradients(
    trial: Trial,
    found: Matched,
    own: LayerSubject,
    inputs: Inputs,
    shape: tuple[int, ...],
    allowed: float,
) -> None:
    names = [name for name in own.sequences if name in own.binding.arguments]
    if any(own.binding.arguments[name].position is not None for name in names):
        return
    if len({id(inputs[name]) for name in names}) < len(names):
        inputs = inputs.replaced(**{name: inputs[name].copy() for name in names})
    cotangent = normal(trial.case.rng, shape, 1.0)
    (call,) = own.calls_for(inputs)
    wrt = [own.binding.arguments[name].name for name in names]
    gradients = own.session.vjp(call, wrt, own.pick, own.array(own.to_own(cotangent)))
    if gradients is None:
        raise Violation("no gradient flows from its output to its input")
    expected = found.gradient(inputs, names, cotangent)
    for name, gradient, right in zip(names, gradients, expected, strict=True):
        scale = max(1.0, float(np.abs(right).max()))
        what = f"with its own weights, the gradient with respect to {own.binding.arguments[name].name}"
        trial.same(own.turn(gradient.values), right, what, 10 * allowed * scale)


# parameters


def _weights(trial: Trial, case: Case | None = None, repeated: bool = False) -> list[dict[str, Any]]:
    """The weights of an object that nobody called."""
    other = _layer(trial).apart("counted")
    return other.weights_of(trial.case if case is None else case, repeated)


def _counted(trial: Trial, case: Case | None = None) -> tuple[int, int]:
    """How many numbers stand in matrices, and how many in vectors: biases, gains."""
    case = trial.case if case is None else case
    unit = case["h"] * case["d"] if "dff" not in case else case["d"]
    sizes = rule(
        np.random.default_rng(0), unit, case["h"] * case["d"], case.get("dff", case["h"] * case["d"])
    )
    matrices = vectors = 0
    for item in _weights(trial, case):
        if not item["alias"]:
            count = item["value"].values.size
            vector = sizes.kind(item["value"].values.shape, False) in ("vector", "")
            matrices, vectors = matrices + count * (not vector), vectors + count * vector
    return matrices, vectors


def number_of_parameters(trial: Trial, matrices: Formula, vectors: Formula) -> None:
    """Numbers in matrices exactly, in vectors at most: biases and the norms' gains may be left out."""
    case = trial.case
    if "d_ff" not in trial.subject.binding.constructor and "dff" in matrices.names:
        raise trial.skip("its inner width is its own affair")
    found, short = _counted(trial)
    expected, most = int(matrices(case)), int(vectors(case))
    if found != expected:
        raise Violation(
            f"its weight matrices hold {found} numbers, expected {expected}", Difference(expected, found)
        )
    if short > most:
        raise Violation(
            f"its biases and gains hold {short} numbers, expected at most {most}", Difference(most, short)
        )


def own_parameters(trial: Trial) -> None:
    """No two parameters of a kind stand in the same memory."""
    for item in _weights(trial, repeated=True):
        if item["alias"] and item["value"].values.size and _alike(item["name"], item["alias"]):
            raise Violation(
                f"{item['name']} and {item['alias']} are one and the same parameter",
                Difference("a parameter of its own", f"the same memory as {item['alias']}"),
            )


def _alike(name: str, other: str) -> bool:
    """Whether two names are of parallel parts; a list of all weights beside the layers is no second set."""
    one, two = name.split("."), other.split(".")
    return len(one) == len(two) and sum(a != b for a, b in zip(one, two, strict=True)) == 1


def layer_saved_and_loaded(trial: Trial) -> None:
    """Weights of its own, saved and loaded strictly into a layer built anew: equal outputs."""
    subject = _layer(trial)
    saved, fresh = subject.apart("saved"), subject.apart("loaded")
    weights = saved.weights_of(trial.case)
    source, target = (other.object_for(trial.case) for other in (saved, fresh))
    if subject.session.state(source) is None:
        raise trial.skip("it has no state_dict")
    rng = trial.case.rng
    values = {w["name"]: w["value"].values for w in weights}
    new = {name: (v + normal(rng, v.shape, 0.3)).astype(v.dtype) for name, v in values.items()}
    subject.session.load(source, {name: subject.array(value) for name, value in new.items()})
    try:
        subject.session.state(source, target)
    except CallFailed as error:
        if error.kind != "exception":
            raise
        raise Violation(f"what it saves cannot be loaded into one built anew: {error}") from None
    before, after = (other.call(trial.inputs, fresh=True)["output"] for other in (saved, fresh))
    what = "with its state_dict loaded into one built anew, the output"
    trial.same(after, before, f"{what} beside that of the saved one", _allowed(trial))


def own_norms(trial: Trial, count: int) -> None:
    """As many gain vectors (all ones at the start) as the block has norms."""
    width = trial.case["h"] * trial.case["d"]
    items = _weights(trial)
    gains = [p for p in items if p["value"].values.size == width and is_ones(p["value"].values)]
    if not gains:
        raise trial.skip("its norms have no gains that can be seen")
    own = [p for p in gains if not p["alias"]]
    if len(own) != count:
        shared = "; some are one and the same" if len(own) < len(gains) else ""
        raise Violation(
            f"it has {len(own)} norms with a gain of their own, expected {count}{shared}",
            Difference(count, len(own)),
        )


def heads_change_output(trial: Trial) -> None:
    """The same width with other numbers of heads: as many parameters, another output."""
    width = trial.case["h"] * trial.case["d"]
    counts, outputs = {}, {}
    for h in (1, 2, 5):
        if width % h:
            continue
        case = trial.case.replaced(h=h, d=width // h)
        counts[h] = sum(item["value"].values.size for item in _weights(trial, case) if not item["alias"])
        outputs[h] = trial.call(Inputs(case, dict(trial.inputs)))["output"]
    for one, other in pairwise(counts):
        if counts[one] != counts[other]:
            raise Violation(
                f"with {other} heads it has {counts[other]} parameters, with {one} it has {counts[one]}",
                Difference(counts[one], counts[other]),
            )
        if outputs[one].shape == outputs[other].shape and np.abs(outputs[one] - outputs[other]).max() < 1e-9:
            raise Violation(
                f"{one} and {other} heads give the same output", Difference("another output", "the same")
            )


def divides_or_refuses(trial: Trial) -> None:
    """A width that the number of heads does not divide raises an error."""
    case = trial.case.replaced(h=3, d=1)
    width = case["h"] * case["d"] + 1
    subject = _layer(trial)
    place = subject.binding.constructor.get("n_heads")
    if place is None:
        raise trial.skip("its number of heads cannot be set")
    if {"d_head", "d_v"} & subject.binding.constructor.keys():
        raise trial.skip("the width of a head is set beside that of the model")
    built = subject.object_for(case)
    wide = subject.binding.constructor["d_model"]
    from dataclasses import replace

    kwargs = {**built.kwargs, wide.name: width} if wide.position is None else built.kwargs
    args = built.args
    if wide.position is not None:
        args = tuple(width if n == wide.position else a for n, a in enumerate(args))
    odd = replace(built, args=args, kwargs=kwargs)
    rows = normal(case.rng, (2, 3, width), 1.0)
    try:
        subject.session.build(odd)
        inputs = subject.default(trial.inputs.replaced(query=rows, key=rows, value=rows))
        (call,) = subject.calls_for(inputs)
        subject.send([replace(call, built=odd)])
    except CallFailed as error:
        if error.kind == "exception":
            return
        raise
    raise Violation(
        f"a width of {width} with 3 heads was taken without an error", Difference("an error", "a result")
    )


# shapes and weights


def layer_shape(trial: Trial) -> None:
    """The output has the shape of the first sequence."""
    first = _layer(trial).sequences[0]
    expected, observed = trial.inputs[first].shape, trial.call()["output"].shape
    if observed != expected:
        raise Violation(
            f"the shape is {list(observed)}, expected {list(expected)}",
            Difference(str(list(expected)), str(list(observed))),
        )


def _given(trial: Trial) -> Inputs:
    """The case's inputs with its mask, where the layer takes one."""
    inputs = trial.inputs
    if inputs.get("mask") is not None and _layer(trial).has("mask"):
        return inputs.replaced(allowed=inputs["mask"])
    return inputs


def layer_weights(trial: Trial) -> None:
    """(B, h, T, S), or (B, T, S) averaged; rows sum to 1, no entry below 0, and 0 where blocked."""
    inputs = _given(trial)
    weights = trial.call(inputs).get("weights")
    case = trial.case
    T = inputs[_layer(trial).sequences[0]].shape[1]
    S = inputs["key"].shape[1]
    expected = (
        (case["B"], T, S) if getattr(_layer(trial), "averaged", False) else (case["B"], case["h"], T, S)
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
    if getattr(_layer(trial), "causal", False):
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
    subject = _layer(trial)
    one = getattr(subject, "form", "") == "self"
    gentle = {name: inputs[name] * 0.4 for name in ("query", "key")}
    inputs = subject.default(inputs.replaced(**gentle))
    before = trial.call(inputs)["output"]
    rng = trial.case.rng
    for j in range(inputs["key"].shape[1]):
        changed = {}
        for name in ("query",) if one else ("key", "value"):
            values = inputs[name].copy()
            values[:, j] += normal(rng, values[:, j].shape, 1.0) + 0.3
            changed[name] = values
        after = trial.call(subject.default(inputs.replaced(**changed)))["output"]
        hidden = ~allowed[:, :, j]
        if one:
            hidden = hidden & (np.arange(hidden.shape[1]) != j)[None, :]
        where = np.broadcast_to(hidden[:, :, None], before.shape)
        trial.shown = {"mask": allowed}
        what = f"after a change at position {j}, the output of a query that may not see it"
        trial.same(after, before, what, _allowed(trial), where)
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
    subject = _layer(trial)
    B, T = inputs["query"].shape[:2]
    if inputs["key"].shape[1] != T:
        raise trial.skip("this looks at sequences of equal length")
    rng = trial.case.rng
    one = getattr(subject, "form", "") == "self"
    if not one:  # queries do not see each other, whatever the keys
        plain = trial.call(inputs)["output"]
        query = inputs["query"].copy()
        query[:, -1] += normal(rng, query[:, -1].shape, 2.0) + 0.3
        after = trial.call(inputs.replaced(query=query))["output"]
        where = np.broadcast_to((np.arange(T) != T - 1)[None, :, None], plain.shape)
        trial.same(after, plain, f"query {T - 1} was changed: the output elsewhere", _allowed(trial), where)
    inputs = inputs.replaced(allowed=np.broadcast_to(np.eye(T, dtype=bool), (B, T, T)).copy())
    before = trial.call(inputs)["output"]
    for j in range(T):
        changed = {}
        for name in ("query",) if one else ("query", "key", "value"):
            values = inputs[name].copy()
            values[:, j] += normal(rng, values[:, j].shape, 2.0) + 0.3
            changed[name] = values
        after = trial.call(subject.default(inputs.replaced(**changed)))["output"]
        where = np.broadcast_to((np.arange(T) != j)[None, :, None], before.shape)
        what = f"each query sees its own position alone, and position {j} was changed: the output elsewhere"
        trial.same(after, before, what, _allowed(trial), where)


# cross-attention


def _memory_name(trial: Trial) -> str:
    return "memory" if "memory" in _layer(trial).sequences else "key"


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
        memory[:, j] += normal(rng, memory[:, j].shape, 2.0) + 0.3
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
    trial.same(after, before, "with the rows of memory in another order, the output", 10 * _allowed(trial))


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
    values[hide] += normal(trial.case.rng, values[hide].shape, 3.0) + 1.0
    changed = _with_memory(trial, values, inputs) if of == "memory" else inputs.replaced(x=values)
    after = trial.call(changed)["output"]
    where = np.ones(before.shape, dtype=bool)
    if of == "target":
        where = np.broadcast_to(~hide[:, :, None], before.shape)
    trial.shown = {"padding": hide}
    trial.same(
        after, before, f"after a change of what is padding in the {of}, the output", _allowed(trial), where
    )
    if of == "target" and getattr(_layer(trial), "triangle", False):
        _no_future_beside_padding(trial, inputs, before, hide)
    values = inputs[name].copy()
    values[:, 0] += normal(trial.case.rng, values[:, 0].shape, 2.0) + 0.5
    changed = _with_memory(trial, values, inputs) if of == "memory" else inputs.replaced(x=values)
    moved = np.abs(trial.call(changed)["output"] - before).max(axis=(1, 2))
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
    x[:, -1] += normal(trial.case.rng, x[:, -1].shape, 3.0) + 1.0
    real = np.zeros_like(hide)
    after = trial.call(inputs.replaced(x=x, hide=real))["output"]
    plain = trial.call(inputs.replaced(hide=real))["output"]
    where = np.broadcast_to((np.arange(T) < T - 1)[None, :, None], before.shape)
    what = "given a mask of padding that hides nothing, after a change of the last position, the output before it"
    trial.same(after, plain, what, _allowed(trial), where)


# norms, residuals, rows


def row_by_row(trial: Trial) -> None:
    """Every position by itself: a change at one leaves the others, a permutation permutes."""
    name = _layer(trial).sequences[0]
    x = trial.inputs[name]
    T = x.shape[1]
    before = trial.call()["output"]
    j = T // 2
    values = x.copy()
    values[:, j] += normal(trial.case.rng, values[:, j].shape, 2.0) + 0.5
    after = trial.changed(**{name: values})["output"]
    where = np.broadcast_to((np.arange(T) != j)[None, :, None], before.shape)
    trial.same(after, before, f"after a change at position {j}, the output elsewhere", _allowed(trial), where)
    order = np.roll(np.arange(T), 1)
    turned = trial.changed(**{name: x[:, order].copy()})["output"]
    trial.same(turned, before[:, order], "with the positions in another order, the output", _allowed(trial))


def residual(trial: Trial) -> None:
    """All weights and biases at zero: pre-norm the block is the identity, post-norm a chain of norms."""
    subject = _layer(trial)
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
    spread = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    expected = (x - mean) / spread
    trial.same(observed, expected, "with all weights at zero, the output beside the normed input", 1e-3)


def keeps_norm(trial: Trial) -> None:
    """At initialisation every row of a post-norm block's output has norm √d."""
    output = trial.call()["output"]
    width = output.shape[-1]
    norms = np.sqrt((output.astype(np.float64) ** 2).sum(axis=-1))
    trial.same(norms, np.full(norms.shape, width**0.5), f"the norm of an output row of width {width}", 2e-3)


def layer_norm(trial: Trial) -> None:
    """(x − μ) / √(σ² + ε) with the biased variance; rows of equal entries stay finite."""
    x = trial.inputs["x"].astype(np.float64)
    if trial.case.get("rows") == "equal":
        x = np.broadcast_to(x[..., :1], x.shape).copy()
    inputs = trial.inputs.replaced(x=x.astype(trial.inputs["x"].dtype))
    observed = trial.call(inputs)["output"]
    mean = x.mean(axis=-1, keepdims=True)
    if trial.case.get("rows") == "equal":
        trial.same(observed, np.zeros(x.shape), "for a row of equal entries, the output", 1e-4)
        return
    variance = np.maximum(x.var(axis=-1, keepdims=True), 1e-12)  # two equal entries by chance
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
    subject, rng = _layer(trial), trial.case.rng
    other = subject.apart("trained")
    built = other.object_for(trial.case)
    width = trial.case["h"] * trial.case["d"]
    new = {"gain": normal(rng, (width,), 0.3) + 1.0, "bias": normal(rng, (width,), 0.5)}
    values = {}
    for item in _weights(trial):
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
    from dataclasses import replace

    calls = [replace(call, train=True) for call in dropping.calls_for(trial.inputs)]
    first = dropping.read(dropping.send(calls), trial.inputs)["output"]
    second = dropping.read(dropping.send(calls), trial.inputs)["output"]
    if first.shape == second.shape and np.array_equal(first, second):
        raise Violation(
            "built with dropout 0.5 and in training mode, two calls gave the same output",
            Difference("different outputs", "equal ones"),
        )

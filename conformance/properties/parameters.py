"""Properties of the parameters of layers: counted, owned, saved; and of what a constructor takes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from ...spec import Formula
from ..candidates.errors import CallFailed
from ..candidates.heads import MultiheadSubject
from ..candidates.layers import LayerSubject
from ..engine import blueprints
from ..engine.base_state import base_state, is_gain
from ..engine.cases import Case, Inputs, normal
from ..engine.trial import Difference, Trial, Violation
from .layers import allowed_for, layer_of, weights_of

__all__ = [
    "divides_or_refuses",
    "heads_change_output",
    "layer_saved_and_loaded",
    "number_of_parameters",
    "own_norms",
    "own_parameters",
]


def _counted(trial: Trial, case: Case | None = None) -> tuple[int, int]:
    """How many numbers stand in matrices, and how many in vectors: biases, gains."""
    case = trial.case if case is None else case
    unit = case["h"] * case["d"] if "dff" not in case else case["d"]
    sizes = base_state(
        np.random.default_rng(0), unit, case["h"] * case["d"], case.get("dff", case["h"] * case["d"])
    )
    matrices = vectors = 0
    for item in weights_of(trial, case):
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
    if found * 4 == expected * 3 and _has_no_projection_by_design(layer_of(trial)):
        raise trial.skip(
            "it has no output projection: one head, or heads side by side, each as wide as asked for"
        )
    if found != expected:
        raise Violation(
            f"its weight matrices hold {found} numbers, expected {expected}", Difference(expected, found)
        )
    if short > most:
        raise Violation(
            f"its biases and gains hold {short} numbers, expected at most {most}", Difference(most, short)
        )


def _has_no_projection_by_design(subject: LayerSubject) -> bool:
    """Whether attention is one head, or heads of a given width side by side."""
    one = "n_heads" not in subject.binding.constructor and "multi" not in subject.binding.name.lower()
    return isinstance(subject, MultiheadSubject) and (one or subject.concatenates)


def own_parameters(trial: Trial) -> None:
    """No two parameters of a kind stand in the same memory."""
    for item in weights_of(trial, repeated=True):
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
    subject = layer_of(trial)
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
    trial.same(after, before, f"{what} beside that of the saved one", allowed_for(trial))


def own_norms(trial: Trial, count: int) -> None:
    """As many gain vectors (all ones at the start) as the block has norms."""
    width = trial.case["h"] * trial.case["d"]
    items = weights_of(trial)
    gains = [p for p in items if p["value"].values.size == width and is_gain(p["value"].values)]
    if not gains:
        raise trial.skip("its norms have no gains that can be seen")
    own = [p for p in gains if not p["alias"]]
    if len(own) != count:
        another = blueprints.another_kind(layer_of(trial), trial.case, known=True)
        if another:
            raise trial.skip(another)
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
        counts[h] = sum(item["value"].values.size for item in weights_of(trial, case) if not item["alias"])
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
    subject = layer_of(trial)
    place = subject.binding.constructor.get("n_heads")
    if place is None:
        raise trial.skip("its number of heads cannot be set")
    if {"d_head", "d_v"} & subject.binding.constructor.keys() or _has_no_projection_by_design(subject):
        raise trial.skip("the width of a head is set beside that of the model")
    built = subject.object_for(case)
    wide = subject.binding.constructor["d_model"]
    kwargs = dict(built.kwargs)
    for other in (wide, subject.binding.constructor.get("d_out")):
        if other is not None:
            kwargs |= {name: width for name in (other.name, *other.also) if name in kwargs}
    args = built.args
    if wide.position is not None:
        args = tuple(width if n == wide.position else a for n, a in enumerate(args))
    odd = replace(built, args=args, kwargs=kwargs)
    rows = normal(case.rng, (2, 3, width), 1.0)
    try:
        subject.session.build(odd)
        inputs = subject.default(trial.inputs.replaced(query=rows, key=rows, value=rows))
        subject.send([replace(call, built=odd) for call in subject.calls_for(inputs)])
    except CallFailed as error:
        if error.kind == "exception":
            return
        raise
    raise Violation(
        f"a width of {width} with 3 heads was taken without an error", Difference("an error", "a result")
    )

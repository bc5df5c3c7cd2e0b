"""Properties of the layers of a whole model, found by the names of their parameters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..engine.cases import Inputs
from ..engine.trial import Difference, Trial, Violation
from .language import subject_of
from .models import model_of, moved_by, outputs_of, silent

__all__ = [
    "every_layer_matters",
    "every_layer_reads_memory",
    "layers_have_own_parameters",
    "lm_layers_have_own_parameters",
]


def _layer_groups(trial: Trial, n: int) -> dict[tuple[str, int], list[str]]:
    """The parameters of each of n layers, by name: what comes with a further layer, and its like in others.

    Layers are told apart by a number in the name; encoder and decoder, by what stands before it.
    Raises OutOfDomain where that is not so.
    """
    model = model_of(trial)
    if not model.layered:
        raise trial.skip("its number of layers cannot be set")
    most, fewer = (
        {item["name"] for item in model.weights(trial.case.replaced(n_layers=k))} for k in (n, n - 1)
    )
    groups: dict[tuple[str, int], list[str]] = {}
    for name in sorted(most - fewer):
        parts = name.split(".")
        index = next((i for i, part in enumerate(parts) if part == str(n - 1)), None)
        if index is None:
            raise trial.skip("its parameters do not tell which layer they belong to")
        for k in range(n):
            like = ".".join([*parts[:index], str(k), *parts[index + 1 :]])
            if k == n - 1 or like in fewer:
                groups.setdefault((".".join(parts[:index]).lstrip("."), k), []).append(like)
    if not groups:
        raise trial.skip("its parameters do not tell which layer they belong to")
    return dict(sorted(groups.items()))


def layers_have_own_parameters(trial: Trial) -> None:
    """Counts for 1, 2 and 3 layers, and places in memory."""
    model = model_of(trial)
    if not model.layered:
        raise trial.skip("its number of layers cannot be set")
    listed = {n: model.weights(trial.case.replaced(n_layers=n), repeated=True) for n in (1, 2, 3)}
    model.last_calls = ()  # no call shows it
    _layers_apart(trial, listed)


def lm_layers_have_own_parameters(trial: Trial) -> None:
    """The same of a language model."""
    subject = subject_of(trial)
    if "n_layers" not in subject.binding.constructor:
        raise trial.skip("its number of layers cannot be set")
    module, listed = subject.binding.entry["module_class"], {}
    for n in (1, 2, 3):
        built = subject.built(trial.case.replaced(L=n), subject.double)
        items = subject.session.parameters(built, repeated=True)
        listed[n] = [item for item in items if item["trainable"] or not module]
    subject.last_calls = ()  # no call shows it
    _layers_apart(trial, listed)


def _layers_apart(trial: Trial, listed: Mapping[int, Sequence[Mapping[str, Any]]]) -> None:
    """Whether with 1, 2 and 3 layers parameters grow by equal steps, and none stands in the place of another."""
    counts = {n: sum(i["value"].values.size for i in items if not i["alias"]) for n, items in listed.items()}
    if not counts[1]:
        raise trial.skip("its parameters cannot be seen")
    if counts[2] == counts[1]:
        raise Violation(
            f"with two layers it has as many parameters as with one, {counts[1]}: "
            "the layers are one and the same, or the second is missing",
            Difference("more than with one layer", str(counts[2])),
        )
    first = {item["name"] for item in listed[1]}
    for item in listed[2]:
        name, alias = item["name"], item["alias"]
        if alias in first and name not in first and _pattern(alias) == _pattern(name):
            raise Violation(f"two layers share weights: {name} is {alias}, in the same place of memory")
    if counts[3] - counts[2] != counts[2] - counts[1] or counts[2] < counts[1]:
        raise Violation(
            f"the number of parameters grows from {counts[1]} to {counts[2]} to {counts[3]} "
            "for one, two and three layers, not by equal steps",
            Difference(str(2 * counts[2] - counts[1]), str(counts[3])),
        )


def _pattern(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def every_layer_matters(trial: Trial) -> None:
    """With the parameters of one layer changed the scores change, and the others' parameters do not."""
    model = model_of(trial)
    case = trial.case.replaced(n_layers=3)
    groups = _layer_groups(trial, 3)
    inputs = _cased(trial.inputs, case)
    original = {item["name"]: item["value"].values for item in model.weights(case)}
    before = model.call(inputs)["output"]
    for (part, k), names in groups.items():
        changed = {name: _shifted(original[name], name) for name in names if name in original}
        if all(values.ndim < 2 for values in changed.values()):
            continue  # biases alone, some of which make no difference in attention
        other = model.variation(variant=f"{part} {k} changed")
        other.load(case, changed)
        moved = float(moved_by(trial, before, other.call(inputs)["output"]).max())
        if not moved > silent(trial):
            raise Violation(
                f"all parameters of layer {k} (of 3, counted from 0; {part}.{k}) were changed, "
                "but no score changed",
                Difference("a change", f"a change of {moved:.3g}"),
            )
        for item in other.weights(case):
            name = item["name"]
            touched = (
                name in original and np.abs(item["value"].values - original[name]).max(initial=0.0) > 1e-3
            )
            if touched and name not in changed and not item["alias"]:
                raise Violation(f"the parameters of {part}.{k} were changed, and {name} changed with them")


def _cased(inputs: Inputs, case: Any) -> Inputs:
    return Inputs(case, dict(inputs))


def _shifted(values: np.ndarray, name: str) -> np.ndarray:
    rng = np.random.default_rng(len(name))
    return values + np.round(rng.normal(0.0, 0.5, values.shape), 2) + 0.25


def every_layer_reads_memory(trial: Trial) -> None:
    """In each layer some weights make a difference with an ordinary memory and none with one of zeros."""
    model = model_of(trial)
    case = trial.case.replaced(n_layers=2)
    groups = _layer_groups(trial, 2)
    other = model.variation(variant="one weight changed")
    full = _cased(trial.inputs, case)
    empty = full.replaced(memory=np.zeros_like(full["memory"]))
    original = {item["name"]: item["value"].values for item in model.weights(case)}
    before = [o.copy() for o in outputs_of(trial, full, empty)]
    readers: Counter[int] = Counter()
    previous = original
    for (_, k), names in groups.items():
        for name in names:
            values = original.get(name)
            if values is None or values.size == max(values.shape, default=1):
                continue
            other.load(case, {**previous, name: _shifted(values, name)})
            previous = {name: values}
            other.prefetch([full, empty])
            after = [other.call(inputs)["output"] for inputs in (full, empty)]
            with_memory, without = (
                float(moved_by(trial, b, a).max()) for b, a in zip(before, after, strict=True)
            )
            readers[k] += with_memory > 1e-6 and without <= silent(trial)
    if not readers.total():
        raise trial.skip("which weights read the memory cannot be told apart in it")
    for k in sorted({k for _, k in groups}):
        if not readers[k]:
            raise Violation(
                f"no weight of layer {k} (counted from 0) of 2 reads the memory, though other layers' weights do",
                Difference("weights that act on the memory", "none"),
            )

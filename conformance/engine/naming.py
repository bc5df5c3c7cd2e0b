"""Names the mistake of a layer with weights: by the weight method, or by loading its weights into the mutants."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np

from ...reference.mutants import load_mutants
from ...spec import Claim, Likely
from ..candidates.errors import FATAL, CallFailed
from ..candidates.layers import LayerSubject
from ..candidates.subject import Subject
from . import draw
from .blueprints import loaded_faults
from .cases import Case, Inputs, OutOfDomain, build_inputs
from .matching import Blueprint, Matched
from .run import Broken, Engine, Run, unsupported
from .trial import Trial, Violation

RECOMPUTING = ("recomputed", "recomputed_stack")  # the properties of the weight method
SIZES = 3  # for which a layer is recomputed to name its mistake
LOADED_CASES = 8  # on which a layer is compared with known mistakes that have its weights
LOADED = 1e-4  # beside the largest entry; some layers compute in float32


def by_weights(engine: Engine, subject: Subject, failing: Sequence[str] = ()) -> Likely | Broken | None:
    """What the weight method says of a layer: a known mistake, something else that is wrong, or nothing."""
    for claim in recomputing(engine, subject.role.id):
        run = Run(engine, claim, subject, (), "", plain=True)
        if unsupported(claim, subject) or run.choices is None:
            continue
        cases = draw.stream(run.choices, claim.requires, engine.examples, engine.seed)
        sizes = {(case.get("h"), case.get("d")): case for case in reversed(cases)}
        names: list[str] = []
        broken = None
        for case in list(sizes.values())[:SIZES]:
            found, done = run.attempt(case)
            if found is not None and found.kind in FATAL:
                return found
            if done:
                broken = broken or found
                names.append(found.error.mutant if found and isinstance(found.error, Violation) else "")
        if names and names[0] and names.count(names[0]) == len(names):
            return _likely(names[0], len(names))
        if not any(names) and isinstance(subject, LayerSubject):
            loaded = _by_loading(engine, subject, claim, cases, failing)
            if loaded is not None:
                return loaded
        return broken
    return None


def _by_loading(
    engine: Engine, subject: LayerSubject, claim: Claim, cases: Sequence[Case], failing: Sequence[str]
) -> Likely | None:
    """The known mistake that, with the layer's own weights, gives what the layer gives.

    They are compared on the cases of the weight method, and on all that the layer was asked where it broke
    other claims: there masks of padding are.
    """
    from ..properties.recomputed import recomputed_inputs

    own = subject.apart("weights")
    for key, found in list(subject.matches.items()):
        chosen = [case for case in cases if (case.get("h"), case.get("d")) == key[:2]][:LOADED_CASES]
        if not isinstance(found, Matched) or not chosen:
            continue
        trials = [Trial(claim, subject, (), case, build_inputs(subject.role, case)) for case in chosen]
        try:
            inputs = [recomputed_inputs(trial) for trial in trials]
            for name in failing:
                inputs += _asked_in(engine, subject, name, chosen[0])
            observed = [own.run(given)["output"] for given in inputs]
        except (CallFailed, OutOfDomain):
            return None
        same_everywhere = partial(_same_everywhere, inputs=inputs, observed=observed)
        if same_everywhere(found.blueprint):
            return None
        names = {f.mutant for f in loaded_faults(subject, chosen[0], found) if same_everywhere(f)}
        own_names = {name for name in names if is_own(engine, name, subject)}
        names = own_names or names  # the same mistake may be known of a part as well
        return _likely(names.pop(), len(inputs), "loading") if len(names) == 1 else None
    return None


def is_own(engine: Engine, name: str, subject: Subject) -> bool:
    """Whether a mistake ("id|place") is one of the layer's own role, and not of a part of it."""
    mutant, _, place = name.partition("|")
    claim = engine.spec.claims.get(load_mutants()[mutant].claim)
    return not place and claim is not None and claim.role == subject.role.id


def _asked_in(engine: Engine, subject: LayerSubject, name: str, sizes: Case) -> list[Inputs]:
    """What the layer was asked where it breaks a claim, in the sizes in which its weights are known."""
    claim, case = engine.spec.claims[name], engine.failing.get((name, subject.binding.path))
    if case is None or claim.property_name in RECOMPUTING:
        return []
    same = {size: sizes[size] for size in ("h", "d", "dff") if size in case and size in sizes}
    longer = {size: max(case[size], 4) for size in ("T", "S") if size in case}
    subject.asked = []
    try:
        case = case.replaced(**same, **longer, **({"B": 2} if "B" in case else {}))
        Run(engine, claim, subject, (), "", plain=True).attempt(case)
    finally:
        asked, subject.asked = subject.asked, None
    return asked


def recomputing(engine: Engine, role: str) -> list[Claim]:
    """The claims of a role that recompute it."""
    return [
        claim
        for claim in engine.spec.claims.values()
        if claim.role == role and claim.property_name in RECOMPUTING
    ]


def _same_everywhere(blueprint: Blueprint, inputs: Sequence[Inputs], observed: Sequence[np.ndarray]) -> bool:
    """Whether a module gives what was observed for all inputs."""
    for given, seen in zip(inputs, observed, strict=True):
        try:
            own = blueprint.run(blueprint.module, given).detach().numpy()
        except RuntimeError:
            return False
        bound = LOADED * max(1.0, float(np.abs(seen).max()))
        if own.shape != seen.shape or not float(np.abs(own - seen).max()) <= bound:
            return False
    return True


def _likely(name: str, cases: int, by: Literal["weights", "loading"] = "weights") -> Likely:
    """A mistake of a layer's own, or in a part of it ("id|place")."""
    mutant, place = load_mutants()[name.partition("|")[0]], name.partition("|")[2]
    words = f"{place[:1].upper()}{place[1:]}{': ' * bool(place)}{mutant.misconception}"
    return Likely(mutant.id, words, mutant.correction, cases, cases, by)

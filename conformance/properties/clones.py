"""Properties of ``clones``, N copies of a module."""

from __future__ import annotations

from typing import Any

from ..candidates.clones import ClonesSubject
from ..engine.trial import Difference, Trial, Violation

__all__ = [
    "clones_counted",
    "clones_equal",
    "clones_independent",
    "clones_own_parameters",
    "clones_registered",
]


def _copies(trial: Trial, repeated: bool = True) -> dict[str, list[dict[str, Any]]]:
    """The parameters of each copy, by the copy's place in the result."""
    subject = trial.subject
    assert isinstance(subject, ClonesSubject)
    found: dict[str, list[dict[str, Any]]] = {}
    for item in subject.session.parameters(subject.copies(trial.case["N"]), repeated=repeated):
        place = next((part for part in item["name"].split(".") if part.isdigit()), "")
        if place:
            found.setdefault(place, []).append(item)
    return found


def clones_counted(trial: Trial) -> None:
    """N modules."""
    N, found = trial.case["N"], _copies(trial)
    if len(found) != N:
        raise Violation(
            f"clones(module, {N}) holds {len(found)} modules with parameters, expected {N}",
            Difference(str(N), str(len(found))),
        )


def clones_own_parameters(trial: Trial) -> None:
    """No two copies at the same place in memory."""
    for items in _copies(trial).values():
        for item in items:
            if item["alias"]:
                name, alias = item["name"].lstrip("."), item["alias"].lstrip(".")
                raise Violation(
                    f"two copies share their parameters: {name} is {alias}, in the same place of memory",
                    Difference("parameters of its own", "shared"),
                )


def clones_independent(trial: Trial) -> None:
    """One copy overwritten, the others read again."""
    subject = trial.subject
    assert isinstance(subject, ClonesSubject)
    before = _copies(trial)
    first, *others = before
    changed = {i["name"]: subject.array(i["value"].values + 1.0) for i in before[first]}
    subject.session.load(subject.copies(trial.case["N"]), changed)
    after = _copies(trial)
    subject.session.load(subject.copies(trial.case["N"]), {i["name"]: i["value"] for i in before[first]})
    for place in others:
        for old, new in zip(before[place], after[place], strict=True):
            what = f"1 was added to the parameters of copy {first}; those of copy {place} ({old['name'].lstrip('.')})"
            trial.same(new["value"].values, old["value"].values, what, 0.0)


def clones_equal(trial: Trial) -> None:
    """All copies begin with the same numbers."""
    first, *others = _copies(trial).values()
    for items in others:
        for one, other in zip(first, items, strict=True):
            what = f"the copies do not begin alike: {other['name'].lstrip('.')} against {one['name'].lstrip('.')}"
            trial.same(other["value"].values, one["value"].values, what, 1e-7)


def clones_registered(trial: Trial) -> None:
    """The state_dict names every copy's parameters."""
    subject = trial.subject
    assert isinstance(subject, ClonesSubject)
    names = subject.session.state(subject.copies(trial.case["N"]))
    if names is None:
        raise Violation(
            "what it returns is no module: the copies are not registered with the model that keeps them",
            Difference("an nn.ModuleList", "something without a state_dict"),
        )
    wanted = {item["name"].lstrip(".") for items in _copies(trial).values() for item in items}
    missing = sorted(wanted - set(names))
    if missing:
        raise Violation(
            f"its state_dict does not hold {', '.join(missing[:4])}",
            Difference(", ".join(sorted(wanted)), ", ".join(names)),
        )

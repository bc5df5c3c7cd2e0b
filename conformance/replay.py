"""Runs the smallest cases of a stored report again: what is fixed, what fails still, what fails otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any, Literal

from ..reports.json_report import finite
from ..spec import Claim, Failure, Report, Verdict
from .api import Check, one_thread
from .candidates.errors import TriuError
from .candidates.subject import Subject
from .engine.cases import Case, OutOfDomain

State = Literal["fixed", "still failing", "different"]


class ReplayError(TriuError):
    """Nothing of a report can be run again; the message says why."""


@dataclass(frozen=True)
class Replayed:
    """A stored failure beside what the same case comes to now."""

    before: Verdict
    state: State
    now: Failure | None = None
    why: str = ""  # where it is different


def stored_failures(report: Report, pattern: str | None) -> list[Verdict]:
    """The verdicts of a report that hold a case to be run again.  Raises ReplayError for none."""
    broken = [v for v in report.verdicts if v.failure is not None and v.failure.case]
    chosen = [v for v in broken if pattern is None or any(fnmatch(v.claim, p) for p in pattern.split(","))]
    if not broken:
        raise ReplayError("the report holds no failure")
    if not chosen:
        known = ", ".join(dict.fromkeys(v.claim for v in broken))
        raise ReplayError(f"the report holds no failure of {pattern}; it holds failures of {known}")
    return chosen


def replay(check: Check, verdicts: list[Verdict]) -> Iterator[Replayed]:
    """Each stored failure again, on the object of the same name, with the case of the same seed."""
    with one_thread():
        for verdict in verdicts:
            yield _again(check, verdict)


def _again(check: Check, before: Verdict) -> Replayed:
    claim = check.spec.claims.get(before.claim)
    if claim is None:
        return Replayed(before, "different", why="this version of triu has no such claim")
    found = _objects(check, claim, before.object)
    if found is None:
        return Replayed(
            before, "different", why=f"nothing of the name {before.object} fills {claim.role} now"
        )
    subject, partners = found
    broken = next((s for s in found[1] + (subject,) if s.problem), None)
    if broken is not None:
        return Replayed(before, "different", why=f"{broken.binding.name}: {broken.problem}")
    assert before.failure is not None
    case = _case(claim, before.failure)
    if case is None:
        return Replayed(before, "different", why="its case does not belong to the claim as it is now")
    try:
        now = check.engine.retry(claim, subject, partners, case)
    except OutOfDomain as error:
        return Replayed(before, "different", why=str(error))
    if now is None:
        return Replayed(before, "fixed")
    if _same(before.failure, now):
        return Replayed(before, "still failing", now)
    return Replayed(before, "different", now, "it fails in another way")


def _objects(check: Check, claim: Claim, names: str) -> tuple[Subject, tuple[Subject, ...]] | None:
    found = []
    for role, name in zip((claim.role, *claim.partners), names.split(" + "), strict=False):
        one = next((s for s in check.candidate.filling(role) if s.binding.name == name), None)
        if one is None:
            return None
        found.append(one)
    return (found[0], tuple(found[1:])) if len(found) == 1 + len(claim.partners) else None


def _case(claim: Claim, failure: Failure) -> Case | None:
    """The stored case with the values that the claim's domain has for what JSON holds."""
    values: dict[str, Any] = {}
    for name, stored in failure.case.items():
        if name == "seed":
            values[name] = stored
            continue
        options = claim.domain.dimensions.get(name, ())
        match = [value for value in options if finite(value) == finite(stored)]
        if not match:
            return None
        values[name] = match[0]
    return Case(values) if values.keys() == {*claim.domain.dimensions, "seed"} else None


NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?")


def _same(before: Failure, now: Failure) -> bool:
    """The same sentence, and numbers that agree as far as a report shows them."""
    if NUMBER.sub("#", before.what) != NUMBER.sub("#", now.what):
        return False
    old, new = NUMBER.findall(before.what), NUMBER.findall(now.what)
    return all(
        abs(float(a) - float(b)) <= 1e-4 * max(1.0, abs(float(a))) for a, b in zip(old, new, strict=True)
    )

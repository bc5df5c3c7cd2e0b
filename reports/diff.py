"""Two reports compared: what fails newly, what is fixed, what is judged no longer, and what of it is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from ..spec import Evidence, Report, Verdict
from .fingerprint import fingerprint
from .known import BROKEN, Known, place

Kind = Literal[
    "newly_failing",
    "fixed",
    "newly_unsupported",
    "failing_otherwise",
    "still_failing",
    "new_claims",
    "no_longer_judged",
    "newly_passing",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
REGRESSIONS = ("newly_failing", "newly_unsupported", "failing_otherwise")
NO_OBJECT = "—"  # stands for the object where a role is not provided
RESTS = "rests on "

# What it was and what it is; two that are missing here are told nowhere.  Broken twice is looked at closely.
_KINDS: Mapping[tuple[str, str], Kind] = {
    ("passed", "broken"): "newly_failing",
    ("passed", "blocked"): "newly_failing",
    ("passed", "unjudged"): "newly_unsupported",
    ("broken", "passed"): "fixed",
    ("broken", "broken"): "still_failing",
    ("broken", "blocked"): "still_failing",
    ("broken", "unjudged"): "no_longer_judged",
    ("blocked", "passed"): "fixed",
    ("blocked", "broken"): "newly_failing",
    ("blocked", "blocked"): "still_failing",
    ("blocked", "unjudged"): "no_longer_judged",
    ("unjudged", "passed"): "newly_passing",
    ("unjudged", "broken"): "newly_failing",
    ("unjudged", "blocked"): "still_failing",
}

Key = tuple[str, str]


@dataclass(frozen=True)
class Change:
    """What became of one claim on one object.

    Attributes:
        kind: in which section it stands.
        before: None where the old report has no such verdict.
        now: where the new report has no such verdict, one that says so (``unsupported``).
        waiting: what follows from it: claims that rest on it and are blocked now or, where it is fixed, no more.
        known: the entry of the known failures that it is.
        other: an entry of the same claim and object for another failure.
        lost: those of ``waiting`` that passed before.
    """

    kind: Kind
    before: Verdict | None
    now: Verdict
    waiting: tuple[Verdict, ...] = ()
    known: Known | None = None
    other: Known | None = None
    lost: tuple[Verdict, ...] = ()

    @property
    def regression(self) -> bool:
        """A MUST that fails and did not, that fails in another way, or that waits for such; never what is known.

        What was blocked before did not pass: mending one fault uncovers the next, which is told and no regression.
        """
        if self.known is not None or self.kind not in REGRESSIONS:
            return False
        told = [self.now, *self.lost] if self.before is None else [self.before, self.now, *self.lost]
        uncovered = self.before is not None and self.before.verdict == "blocked"
        return any(verdict.level == "MUST" for verdict in (self.lost if uncovered else told))


@dataclass(frozen=True)
class Difference:
    """Two reports compared.  ``idle`` are entries of known failures that fit nothing, each with why."""

    old: Report
    new: Report
    changes: tuple[Change, ...]
    idle: tuple[tuple[Known, str], ...] = ()

    @property
    def regressions(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.regression)

    @property
    def known(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.known is not None)

    def of(self, kind: Kind) -> tuple[Change, ...]:
        """The changes of a kind that are not known, MUST before SHOULD before MAY."""
        levels = ("MUST", "SHOULD", "MAY")
        found = [change for change in self.changes if change.kind == kind and change.known is None]
        return tuple(sorted(found, key=lambda c: levels.index(c.now.level) if c.now.level in levels else 3))


def compare(old: Report, new: Report, known: Sequence[Known] = ()) -> Difference:
    """Compare two reports.  Raises ValueError where they have no claim in common."""
    asked = {verdict.claim for verdict in old.verdicts}
    if not asked & {verdict.claim for verdict in new.verdicts}:
        raise ValueError("the two reports have no claim in common; compare two checks of the same claims")
    before, now = _by_key(old), _by_key(new)
    gone = {key: _gone(verdict, new) for key, verdict in before.items() if key not in now}
    changes = {}
    for key, verdict in {**now, **gone}.items():
        kind = _kind(before.get(key), verdict, verdict.claim in asked)
        if kind is not None:
            changes[key] = Change(kind, before.get(key), verdict)
    changes = _folded(changes, before, now)
    told = tuple(_with_known(change, known) for change in changes.values())
    return Difference(old, new, told, tuple(_idle(told, {**now, **gone}, known)))


def about(report: Report) -> dict[str, Any]:
    """What a report was made of and with: target, seed, triu, torch, examples."""
    environment = report.environment
    own = environment.get("candidate")
    return {
        "target": report.candidate.get("target"),
        "seed": report.seed,
        "triu": environment.get("triu"),
        "torch": (own if isinstance(own, Mapping) else {}).get("torch", environment.get("torch")),
        "examples": environment.get("examples"),
    }


def _by_key(report: Report) -> dict[Key, Verdict]:
    found: dict[Key, Verdict] = {}
    for verdict in report.verdicts:
        key = (verdict.claim, verdict.object)
        absent = verdict.object == NO_OBJECT and verdict.verdict == "unsupported"
        if not absent and (key not in found or _state(found[key]) != "broken"):  # of two objects of one name
            found[key] = verdict
    return found


def _state(verdict: Verdict | None) -> str:
    if verdict is None or verdict.verdict == "unsupported":
        return "unjudged"
    return "broken" if verdict.verdict in BROKEN else verdict.verdict


def _kind(before: Verdict | None, now: Verdict, asked: bool) -> Kind | None:
    if not asked:
        return None if _state(now) == "unjudged" else "new_claims"
    if before is not None and _state(before) == _state(now) == "broken":
        return "still_failing" if fingerprint(before) == fingerprint(now) else "failing_otherwise"
    return _KINDS.get((_state(before), _state(now)))


def _gone(before: Verdict, new: Report) -> Verdict:
    """A verdict for what the new report does not judge."""
    same = [verdict for verdict in new.verdicts if verdict.claim == before.claim]
    reason = "the new report has no such claim (another --claims, --spec or version of triu)"
    if same:
        reason = next((v.reason for v in same if v.object == NO_OBJECT), "it is not there any more")
    return replace(
        before, verdict="unsupported", reason=reason, failure=None, evidence=Evidence(), margin=None
    )


def _folded(
    changes: Mapping[Key, Change], before: Mapping[Key, Verdict], now: Mapping[Key, Verdict]
) -> dict[Key, Change]:
    """Claims that are blocked now, or were, under what they rest on, if that stands in a fitting section."""
    told = dict(changes)
    for key, change in changes.items():
        blocked, among, fitting = change.now, now, KINDS
        if change.kind == "newly_failing":
            fitting = ("newly_failing",)
        if change.kind in ("fixed", "no_longer_judged") and change.before is not None:
            blocked, among, fitting = change.before, before, (change.kind,)
        cause = _cause(blocked, among)
        if cause is None or cause not in told or told[cause].kind not in fitting:
            continue
        above = told[cause]
        lost = (change.now,) if change.kind == "newly_failing" else ()
        told[cause] = replace(above, waiting=(*above.waiting, change.now), lost=(*above.lost, *lost))
        del told[key]
    return told


def _cause(blocked: Verdict, among: Mapping[Key, Verdict]) -> Key | None:
    """Where the verdict stands that another one is blocked by."""
    if blocked.verdict != "blocked" or not blocked.reason.startswith(RESTS):
        return None
    claim, parts = blocked.reason.removeprefix(RESTS), blocked.object.split(" + ")
    places = [key for key in ((claim, blocked.object), *((claim, part) for part in parts)) if key in among]
    return next((key for key in places if among[key].verdict in BROKEN), None)


def _with_known(change: Change, known: Sequence[Known]) -> Change:
    if change.kind in ("fixed", "newly_passing", "no_longer_judged"):
        return change
    here = [entry for entry in known if entry.place == place(change.now)]
    found = fingerprint(change.now)
    for entry in here:
        if entry.fingerprint == found:
            return replace(change, known=entry)
    if here and change.now.verdict in BROKEN:
        kind = change.kind if change.kind == "newly_failing" else "failing_otherwise"
        return replace(change, kind=kind, other=here[0])
    return change


def _idle(
    changes: Sequence[Change], verdicts: Mapping[Key, Verdict], known: Sequence[Known]
) -> list[tuple[Known, str]]:
    """Entries to be taken off the list; what fails otherwise, or waits, is told elsewhere."""
    used = {change.known for change in changes}
    by_place = {place(verdict): verdict for verdict in verdicts.values()}
    found = []
    for entry in known:
        verdict = by_place.get(entry.place)
        if entry in used or (verdict is not None and _state(verdict) in ("broken", "blocked")):
            continue
        why = "no report has this claim on this object"
        if verdict is not None:
            why = "passes now" if verdict.verdict == "passed" else f"is not judged now: {verdict.reason}"
        found.append((entry, why))
    return found

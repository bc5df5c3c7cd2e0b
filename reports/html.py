"""A report as one page of HTML: the verdict, what failed with a picture of it, and every claim by role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ..spec import OUTCOMES, BoundObject, Failure, Report, Verdict
from .feedback import Problem, labelled, problem_of
from .pages import page
from .safe import clean
from .text import HEADINGS, LOUD, MARKS, grouped, headline, waiting


@dataclass(frozen=True)
class Told:
    """A failure on the page: the problem in words and pictures, and its place among the claims."""

    anchor: str
    claim: str
    level: str
    source: tuple[str, ...]
    problem: Problem
    same: tuple[str, ...]
    waiting: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """One object that was found."""

    role: str
    name: str
    signature: str
    place: str
    conventions: tuple[tuple[str, str, str], ...]
    ignored: str
    problem: str


@dataclass(frozen=True)
class Row:
    """One verdict in the table of all claims."""

    claim: str
    title: str
    level: str
    source: str
    object: str
    verdict: str
    mark: str
    note: str
    anchor: str


def _state(report: Report) -> str:
    """The colour of the first line."""
    if report.suite_fault:
        return "suite_fault"
    return "passed" if report.conforms else "failed" if report.provides else "unsupported"


def to_html(report: Report) -> str:
    """The report as a page that loads nothing, runs nothing of the candidate's, and reads well without JavaScript."""
    failures = _failures(report)
    anchors = {
        (t.claim, verdict.object): t.anchor
        for told in failures.values()
        for t, verdicts in told
        for verdict in verdicts
    }
    absent = [v for v in report.verdicts if is_absent(v)]
    rows: dict[str, list[Row]] = {}
    for verdict in report.verdicts:
        if verdict not in absent:
            rows.setdefault(_words(verdict.role), []).append(_row(verdict, anchors))
    missing = dict.fromkeys(_words(v.role) for v in absent if " + " not in v.role)
    return page(
        "report.html",
        script=True,
        title=headline(report),
        state=_state(report),
        marks=MARKS,
        counts=[(outcome, n) for outcome, n in report.counts.items() if n],
        failures={HEADINGS[level]: [t for t, _ in told] for level, told in failures.items() if told},
        found=[_found(item) for item in report.binding],
        notes=[clean(note) for note in report.notes],
        rows=rows,
        outcomes=[o for o in OUTCOMES if any(row.verdict == o for group in rows.values() for row in group)],
        missing=list(missing),
        environment=_environment(report),
        labelled=labelled,
    )


def is_absent(verdict: Verdict) -> bool:
    """Whether nothing that the claim concerns is provided."""
    return (
        verdict.verdict == "unsupported"
        and verdict.object == "—"
        and verdict.reason.startswith("it provides")
    )


def notebook_html(report: Report) -> str:
    """The page within a frame of its own, so that neither its styles nor the notebook's reach the other."""
    return (
        f'<iframe sandbox title="triu report" srcdoc="{escape(to_html(report))}" '
        'style="width: 100%; height: 36rem; border: 1px solid #8888; resize: vertical"></iframe>'
    )


def _failures(report: Report) -> Mapping[str, list[tuple[Told, Sequence[Verdict]]]]:
    told_already: set[tuple[str, ...]] = set()
    found: dict[str, list[tuple[Told, Sequence[Verdict]]]] = {}
    count = 0
    for level in HEADINGS:
        loud = [v for v in report.verdicts if v.verdict in LOUD and v.level == level]
        for group in grouped(loud):
            count += 1
            verdict = group[0]
            failure = verdict.failure or Failure(verdict.reason)
            told = Told(
                anchor=f"failure-{count}",
                claim=verdict.claim,
                level=level,
                source=tuple(map(clean, verdict.source)),
                problem=problem_of(verdict, failure, clean(failure.what), False, told_already),
                same=tuple(v.claim for v in group[1:]),
                waiting=tuple(waiting(report, verdict)),
            )
            found.setdefault(level, []).append((told, group))
    return found


def _row(verdict: Verdict, anchors: Mapping[tuple[str, str], str]) -> Row:
    return Row(
        claim=verdict.claim,
        title=clean(verdict.title),
        level=verdict.level,
        source="; ".join(map(clean, verdict.source)),
        object="" if verdict.object == "—" else clean(verdict.object),
        verdict=verdict.verdict,
        mark=MARKS[verdict.verdict],
        note=_note(verdict),
        anchor=anchors.get((verdict.claim, verdict.object), ""),
    )


def _note(verdict: Verdict) -> str:
    if verdict.reason:
        return clean(verdict.reason)
    cases = (
        f"{verdict.evidence.cases} case{'s' * (verdict.evidence.cases != 1)}"
        if verdict.evidence.cases
        else ""
    )
    if not isinstance(verdict.margin, int | float):
        return cases
    return f"{cases}, {100 * verdict.margin:.2g} % of the error allowed"


def _found(item: BoundObject) -> Found:
    return Found(
        role=_words(item.role),
        name=clean(item.object),
        signature=clean(item.signature, 300),
        place=f"{clean(item.file)}, line {item.line}" if item.file and item.line else clean(item.file),
        conventions=tuple(
            (name.replace("_", " "), clean(value), how)
            for name, (value, how) in (item.conventions if item.judged else {}).items()
        ),
        ignored=clean(", ".join(item.ignored)),
        problem="" if item.judged else clean(item.problem),
    )


def _environment(report: Report) -> list[tuple[str, str]]:
    told: dict[str, Any] = {"seed": report.seed, **report.environment}
    return [(name, clean(_plain(value))) for name, value in told.items() if value not in ("", [], {}, None)]


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _words(role: str) -> str:
    return role.replace("_", " ")

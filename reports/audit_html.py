"""An audit of lessons as a page: what to mend, and every statement in a table that can be filtered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..spec import FINDINGS, Audited, AuditedLesson, called
from .audit import FINDING_MARKS, evidence, result_words, totals_line
from .audit_markdown import LEAD, MEND, PREFACE
from .pages import page
from .safe import clean


@dataclass(frozen=True)
class Shown:
    """A row on the page."""

    anchor: str
    place: str
    kind: str
    says: str
    finding: str
    called: str
    mark: str
    lead: str
    words: str
    evidence: str
    claims: tuple[str, ...]
    checks: tuple[tuple[str, str, str], ...]  # what it is and whether it holds, what came out, code
    problems: tuple[str, ...]


def audit_html(lessons: Sequence[AuditedLesson]) -> str:
    """The audit as a page that loads nothing and reads well without JavaScript."""
    shown = {x.lesson: [_shown(row) for row in x.rows] for x in lessons}
    return page(
        "audit.html",
        script=True,
        title="What holds in the lessons, and what does not",
        totals=totals_line(lessons),
        counts=[
            (f, called(f), FINDING_MARKS[f], n) for f in FINDINGS if (n := sum(x.counts[f] for x in lessons))
        ],
        problems=[clean(problem) for x in lessons for problem in x.problems],
        preface=PREFACE.replace("`", "").split("\n\n"),
        lessons=[(lesson.id, clean(lesson.title), rows, _by_place(rows)) for lesson, rows in shown.items()],
        mend={**MEND, "convention": "Conventions: choices, each of them right"},
    )


def _shown(row: Audited) -> Shown:
    statement = row.statement
    return Shown(
        anchor=statement.id,
        place=clean(statement.place),
        kind=statement.kind,
        says=clean(statement.says),
        finding=row.finding,
        called=called(row.finding),
        mark=FINDING_MARKS[row.finding],
        lead=LEAD.get(statement.verdict, ""),
        words=clean(statement.words),
        evidence=evidence(row),
        claims=tuple(row.claims),
        checks=tuple(
            (result_words(check.role, came.holds), clean(came.shown), check.code.strip("\n"))
            for check, came in zip(statement.checks, row.came, strict=True)
        ),
        problems=tuple(map(clean, row.problems)),
    )


def _by_place(rows: Sequence[Shown]) -> Mapping[str, Sequence[Shown]]:
    places: dict[str, list[Shown]] = {}
    for row in rows:
        places.setdefault(row.place, []).append(row)
    return places

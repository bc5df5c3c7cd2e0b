"""An audit of lessons for a terminal and as data, and the words that its other forms share."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tabulate import SEPARATING_LINE, tabulate

from ..spec import FINDINGS, Audited, AuditedLesson, Finding, called
from .safe import clean
from .text import painter, wrapped

AUDIT_FORMAT = 1
FINDING_MARKS: Mapping[str, str] = {
    "holds": "✓",
    "wrong": "✗",
    "not reproducible": "≠",
    "holds under a condition": "±",
    "convention": "↔",
    "not checkable here": "–",
}
ROLES: Mapping[str, str] = {
    "as stated": "As stated",
    "right": "As corrected",
    "reading": "Read in another way",
    "under": "Where the condition is met",
    "otherwise": "Where it is not",
    "one": "One way",
    "other": "The other way",
}


def audit_text(
    lessons: Sequence[AuditedLesson], findings: Sequence[Finding], *, width: int = 100, color: bool = False
) -> str:
    """A summary, and for each lesson a table of the rows that have one of the verdicts."""
    lines = wrapped(totals_line(lessons), width)
    lines += [
        "",
        tabulate(*counts_table(lessons), tablefmt="simple"),
        "",
    ]
    problems = [problem for lesson in lessons for problem in lesson.problems]
    if problems:
        rows = len({problem.split(":")[0] for problem in problems})
        first = f"✗ {_number(rows, 'row')} {'does' if rows == 1 else 'do'} not come out as declared:"
        lines.append(painter(color)(first, "red"))
        for problem in problems:
            told = wrapped(clean(problem), width - 4)
            lines += [f"  {told[0]}", *(f"    {line}" for line in told[1:])]
    else:
        lines += wrapped("✓ Every row comes out as its ledger declares it.", width)
    for audited in lessons:
        rows = [row for row in audited.rows if row.finding in findings]
        if rows:
            lines += ["", *wrapped(f"{audited.lesson.id}: {clean(audited.lesson.title)}", width), ""]
            lines.append(_table(rows, width))
    return "\n".join(lines) + "\n"


def totals_line(lessons: Sequence[AuditedLesson]) -> str:
    sections = [section for lesson in lessons for section in lesson.lesson.sections]
    rows = sum(len(lesson.rows) for lesson in lessons)
    stand = ", ".join(
        _number(sum(counted), word)
        for word, counted in (
            ("table", [s.tables for s in sections]),
            ("snippet", [s.snippets for s in sections]),
            ("question", [s.questions for s in sections]),
        )
    )
    return (
        f"{_number(len(lessons), 'document')} with {_number(len(sections), 'section')} ({stand}): "
        f"{_number(rows, 'statement')}"
    )


def _number(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def counts_table(lessons: Sequence[AuditedLesson]) -> tuple[list[list[str]], list[str]]:
    """The number of rows of each verdict, a column for each lesson, and the heads."""
    summed = len(lessons) > 1
    lines = []
    for finding in FINDINGS:
        counts = [lesson.counts[finding] for lesson in lessons]
        lines.append([called(finding), *map(str, counts), *([str(sum(counts))] if summed else [])])
    rows = [len(lesson.rows) for lesson in lessons]
    lines.append(["all", *map(str, rows), *([str(sum(rows))] if summed else [])])
    return lines, ["verdict", *(lesson.lesson.id for lesson in lessons), *(["all"] if summed else [])]


def _table(rows: Sequence[Audited], width: int) -> str:
    """Place, statement, verdict, evidence; each cell is wrapped, and a place is told once."""
    room = max(50, width - 6)
    sizes = [room * 18 // 100, room * 38 // 100, 13, room - room * 18 // 100 - room * 38 // 100 - 13]
    body: list[Any] = []
    last = ""
    for row in rows:
        place = row.statement.place
        if body:
            body.append(SEPARATING_LINE if place != last else [" "])
        verdict = f"{FINDING_MARKS[row.finding]} {called(row.finding)}"
        says = clean(row.statement.says)
        if row.statement.words and row.finding != "not checkable here":
            says += f"\n→ {clean(row.statement.words)}"
        cells = (clean(place) if place != last else "", says, verdict, evidence(row, "\n"))
        body.append([_folded(cell, size) for cell, size in zip(cells, sizes, strict=True)])
        last = place
    heads = ["place", "statement", "verdict", "evidence"]
    table = tabulate(body, heads, tablefmt="simple", disable_numparse=True, preserve_whitespace=True)
    return "\n".join(line.rstrip() for line in table.split("\n"))


def _folded(text: str, width: int) -> str:
    """Wrapped line by line; what is too long breaks at hyphens."""
    return "\n".join(line for part in text.split("\n") for line in textwrap.wrap(part, width))


def evidence(row: Audited, joint: str = "; ") -> str:
    """What a verdict rests on, in a few words."""
    told = [claim if outcome == "passed" else f"{claim} ({outcome})" for claim, outcome in row.claims.items()]
    parts = [joint.join(told)] if told else []
    for check, came in zip(row.statement.checks, row.came, strict=True):
        plainly = check.role == "as stated" and came.holds
        told = "computed" if plainly else result_words(check.role, came.holds).lower()
        joined = ": " if plainly else ", "
        parts.append(f"{told}{joined}{clean(came.shown, 160)}" if came.shown else told)
    if row.finding == "not checkable here":
        parts.append(clean(row.statement.why))
    return joint.join(parts)


def result_words(role: str, holds: bool | None) -> str:
    """What a check is for, and whether it holds."""
    told = "cannot be run" if holds is None else "holds" if holds else "does not hold"
    return f"{ROLES[role]}: {told}"


def audit_json(lessons: Sequence[AuditedLesson]) -> str:
    """The audit as JSON, of a format that changes only with its number."""
    document = {
        "format": AUDIT_FORMAT,
        "as_declared": not any(lesson.problems for lesson in lessons),
        "counts": {f: sum(lesson.counts[f] for lesson in lessons) for f in FINDINGS},
        "documents": [
            {
                "id": x.lesson.id,
                "title": x.lesson.title,
                "counts": dict(x.counts),
                "sections": [asdict(section) for section in x.lesson.sections],
                "statements": [_data(row) for row in x.rows],
            }
            for x in lessons
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _data(row: Audited) -> Mapping[str, Any]:
    s = row.statement
    return {
        **{"id": s.id, "place": s.place, "kind": s.kind, "says": s.says},
        **{"verdict": row.verdict, "declared": s.verdict, "problems": list(row.problems)},
        **{"words": s.words, "no_claim": s.no_claim, "see": list(s.see), "claims": dict(row.claims)},
        "checks": [
            {
                "as": check.role,
                "holds": came.holds,
                "shown": came.shown,
                "problem": came.problem,
                "code": check.code,
            }
            for check, came in zip(s.checks, row.came, strict=True)
        ],
    }

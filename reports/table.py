"""The conformance table: claims by candidates, from reports; for a terminal, Markdown, a page, CSV and JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from tabulate import tabulate

from ..spec import OUTCOMES, Failure, Outcome, Report, Verdict
from .feedback import Problem, labelled, problem_of
from .json_report import finite
from .pages import page
from .safe import clean, code_span, markdown
from .spreadsheet import to_csv
from .text import LOUD, MARKS, wrapped

TABLE_FORMAT = 1
# The verdict of a cell is the worst on any object of the candidate.
WORST: tuple[Outcome, ...] = (
    *("suite_fault", "failed", "errored", "inconclusive", "blocked", "passed", "unsupported"),
)
LEVELS = ("MUST", "SHOULD", "MAY")


@dataclass(frozen=True)
class Candidate:
    """A column: a candidate with the versions that it was judged with; ``problem`` is why it could not be."""

    name: str
    target: str
    version: str
    versions: Mapping[str, str]
    seed: int | None
    verdict: str
    problem: str = ""


@dataclass(frozen=True)
class Cell:
    """What a claim came to for a candidate, the worst of its objects first."""

    verdict: Outcome | None
    on: tuple[tuple[str, Outcome, str], ...]  # object, verdict, what happened or why


@dataclass(frozen=True)
class Row:
    """One claim, with a cell for each candidate."""

    claim: str
    title: str
    role: str
    level: str
    source: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """Claims by candidates; ``idle`` counts the claims that concern none of them and have no row."""

    candidates: tuple[Candidate, ...]
    rows: tuple[Row, ...]
    totals: Mapping[str, tuple[Mapping[Outcome, int], ...]]  # level -> counts for each candidate
    idle: int


Column = tuple[str, Report | str]  # a target, and its report or why there is none


def tabled(columns: Sequence[Column], *, some: bool = False) -> Table:
    """The table of some candidates, in their order, its claims in the order of the spec that judged them first.

    With ``some`` the reports hold a selection of claims, and verdicts say so.
    """
    reports = [found if isinstance(found, Report) else None for _, found in columns]
    names = _names([target for target, _ in columns])
    by_claim = [_by_claim(report) for report in reports]
    rows = []
    for claim in _order([report for report in reports if report is not None]):
        first = next(verdicts[claim][0] for verdicts in by_claim if claim in verdicts)
        cells = tuple(_cell(verdicts.get(claim, ())) for verdicts in by_claim)
        rows.append(Row(claim, first.title, first.role, first.level, first.source, cells))
    kept = tuple(row for row in rows if any(c.verdict not in (None, "unsupported") for c in row.cells))
    totals: Mapping[str, tuple[Mapping[Outcome, int], ...]] = {
        level: tuple(
            {o: sum(r.level == level and r.cells[n].verdict == o for r in rows) for o in OUTCOMES}
            for n in range(len(columns))
        )
        for level in LEVELS
        if any(row.level == level for row in rows)
    }
    candidates = tuple(
        _candidate(name, target, found, " on these claims" * some)
        for name, (target, found) in zip(names, columns, strict=True)
    )
    return Table(candidates, kept, totals, len(rows) - len(kept))


def _names(targets: Sequence[str]) -> list[str]:
    """Short names: the last part of a path; the whole target where two would be the same."""
    short = [target.rstrip("/").rsplit("/", 1)[-1].removesuffix(".py") or target for target in targets]
    names = [one if short.count(one) == 1 else target for one, target in zip(short, targets, strict=True)]
    return [f"{name} ({n})" if names.count(name) > 1 else name for n, name in enumerate(names, 1)]


def _by_claim(report: Report | None) -> dict[str, list[Verdict]]:
    found: dict[str, list[Verdict]] = {}
    for verdict in report.verdicts if report is not None else ():
        found.setdefault(verdict.claim, []).append(verdict)
    return found


def _order(reports: Sequence[Report]) -> list[str]:
    """All claims, those of one role together, as the first report that has them puts them."""
    by_role: dict[str, dict[str, None]] = {}
    for report in reports:
        for verdict in report.verdicts:
            by_role.setdefault(verdict.role, {})[verdict.claim] = None
    return [claim for claims in by_role.values() for claim in claims]


def _cell(verdicts: Sequence[Verdict]) -> Cell:
    ordered = sorted(verdicts, key=lambda v: WORST.index(v.verdict))
    told: tuple[tuple[str, Outcome, str], ...] = tuple(
        (v.object, v.verdict, v.failure.what if v.failure else v.reason) for v in ordered
    )
    return Cell(ordered[0].verdict if ordered else None, told)


def _candidate(name: str, target: str, found: Report | str, on: str) -> Candidate:
    if isinstance(found, str):
        return Candidate(name, target, "", {}, None, "not judged", found)
    verdict = (
        "suite at fault"
        if found.suite_fault
        else "conforms"
        if found.conforms
        else "does not conform"
        if found.provides
        else "nothing judged"
    )
    own = found.environment.get("candidate", {})
    versions = {"triu": found.environment.get("triu", ""), **(own if isinstance(own, Mapping) else {})}
    return Candidate(
        name,
        target,
        str(found.candidate.get("version", "")),
        {tool: str(version) for tool, version in versions.items() if version},
        found.seed,
        verdict if found.suite_fault else f"{verdict}{on}",
    )


# For a terminal and as Markdown


def table_text(table: Table, width: int = 100) -> str:
    """The table for a terminal: candidates are numbered columns, so that many fit."""
    lines = []
    for n, candidate in enumerate(table.candidates, 1):
        told = f"{clean(candidate.name)}: {candidate.verdict}{_aside(candidate)}"
        first, *rest = wrapped(told, width - 5)
        lines += [f"{n:>3}  {first}", *(f"     {line}" for line in rest)]
    size = max(30, width - 5 * len(table.candidates) - 12)
    body: list[Any] = []
    for role in dict.fromkeys(row.role for row in table.rows):
        body.append([role.upper().replace("_", " ")])
        for row in [row for row in table.rows if row.role == role]:
            marks = [_mark(cell) for cell in row.cells]
            told = textwrap.shorten(f"{clean(row.claim)}: {clean(row.title)}", size - 2, placeholder=" …")
            body.append([f"  {told}", row.level, *marks])
    heads = ["claim", "level", *range(1, len(table.candidates) + 1)]
    lines += ["", tabulate(body, heads, tablefmt="simple", disable_numparse=True, preserve_whitespace=True)]
    lines += ["", *_totals_text(table), "", *wrapped(_legend(table), width)]
    return "\n".join(lines) + "\n"


def _aside(candidate: Candidate) -> str:
    if candidate.problem:
        return f" ({clean(candidate.problem, 300)})"
    told = [candidate.version, *(f"{tool} {version}" for tool, version in candidate.versions.items())]
    return f" ({clean('; '.join(part for part in told if part))})"


def _mark(cell: Cell) -> str:
    return MARKS[cell.verdict] if cell.verdict else ""


def _totals_text(table: Table) -> list[str]:
    heads = ["level", "", *range(1, len(table.candidates) + 1)]
    return [tabulate(_totals(table), heads, tablefmt="simple", disable_numparse=True)]


def _totals(table: Table) -> list[list[str]]:
    """For each level a row for each verdict that there is, with the number for each candidate."""
    rows = []
    for level, counts in table.totals.items():
        for outcome in OUTCOMES:
            if any(count[outcome] for count in counts):
                name = outcome.replace("_", " ")
                rows.append([level, f"{MARKS[outcome]} {name}", *(str(count[outcome]) for count in counts)])
    return rows


def _legend(table: Table) -> str:
    seen = {cell.verdict for row in table.rows for cell in row.cells}
    marks = ", ".join(f"{MARKS[o]} {o.replace('_', ' ')}" for o in OUTCOMES if o in seen)
    idle = f" {table.idle} claims concern none of them and are left out." if table.idle else ""
    return f"{marks}. A cell shows the worst verdict on any object of the candidate.{idle}"


def table_markdown(table: Table) -> str:
    """The table as Markdown, with what failed below it."""
    lines = ["# Conformance", ""]
    facts = [
        [markdown(c.name), c.verdict, markdown(c.version), markdown(_versions(c)), markdown(c.problem)]
        for c in table.candidates
    ]
    heads = ["candidate", "verdict", "version", "judged with", "problem"]
    lines += [tabulate(facts, heads, tablefmt="pipe", disable_numparse=True), ""]
    names = [markdown(c.name) for c in table.candidates]
    anchors = {key: f"failure-{n}" for n, key in enumerate(_failing(table), 1)}
    for role in dict.fromkeys(row.role for row in table.rows):
        body = []
        for row in [row for row in table.rows if row.role == role]:
            marks = [_linked(anchors.get((row.claim, n)), _mark(cell)) for n, cell in enumerate(row.cells)]
            body.append([f"{code_span(row.claim)} {markdown(row.title)}", row.level, *marks])
        lines += [f"## {markdown(role.replace('_', ' '))}", ""]
        lines += [tabulate(body, ["claim", "level", *names], tablefmt="pipe", disable_numparse=True), ""]
    lines += ["## Totals", ""]
    lines += [
        tabulate(_totals(table), ["level", "", *names], tablefmt="pipe", disable_numparse=True),
        "",
        _legend(table),
        "",
    ]
    if anchors:
        lines += ["## What did not pass", ""]
    rows = {row.claim: row for row in table.rows}
    for (claim, n), anchor in anchors.items():
        lines += [f'<a id="{anchor}"></a>', "", f"**{names[n]}**, {code_span(claim)}:", ""]
        for name, verdict, what in rows[claim].cells[n].on:
            if verdict in LOUD:
                lines += [f"- {markdown(name)} {verdict}: {markdown(what)}"]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _linked(anchor: str | None, mark: str) -> str:
    return f"[{mark}](#{anchor})" if anchor else mark


def _versions(candidate: Candidate) -> str:
    return ", ".join(f"{tool} {version}" for tool, version in candidate.versions.items())


def _failing(table: Table) -> list[tuple[str, int]]:
    return [(row.claim, n) for row in table.rows for n, cell in enumerate(row.cells) if cell.verdict in LOUD]


# For other tools


def table_csv(table: Table) -> str:
    """A row for each claim and a column for each candidate."""
    rows = [
        (row.claim, row.title, row.role, row.level, *(cell.verdict or "" for cell in row.cells))
        for row in table.rows
    ]
    return to_csv(("claim", "title", "role", "level", *(c.name for c in table.candidates)), rows)


def table_json(table: Table) -> str:
    """All of the table as data."""
    claims = [
        {
            "claim": row.claim,
            "title": row.title,
            "role": row.role,
            "level": row.level,
            "source": list(row.source),
            "verdicts": [cell.verdict for cell in row.cells],
            "objects": [
                [{"object": name, "verdict": verdict, "what": what} for name, verdict, what in cell.on]
                for cell in row.cells
            ],
        }
        for row in table.rows
    ]
    document = {
        "format": TABLE_FORMAT,
        "candidates": [asdict(candidate) for candidate in table.candidates],
        "claims": claims,
        "totals": {level: list(counts) for level, counts in table.totals.items()},
        "claims_that_concern_none": table.idle,
    }
    return json.dumps(finite(document), indent=1, ensure_ascii=False) + "\n"


# As a page


@dataclass(frozen=True)
class Told:
    """A failure below the table."""

    anchor: str
    claim: str
    level: str
    problem: Problem


def table_html(table: Table, columns: Sequence[Column]) -> str:
    """The table as a page; what failed is told below it, one click away."""
    failures: dict[int, list[Told]] = {}
    anchors: dict[tuple[str, int], str] = {}
    for n, (_, report) in enumerate(columns):
        told: set[tuple[str, ...]] = set()
        for verdict in report.verdicts if isinstance(report, Report) else ():
            if verdict.verdict in LOUD:
                failure = verdict.failure or Failure(verdict.reason)
                problem = problem_of(verdict, failure, clean(failure.what), False, told)
                anchor = f"failure-{n + 1}-{len(failures.get(n, ())) + 1}"
                anchors.setdefault((verdict.claim, n), anchor)
                failures.setdefault(n, []).append(Told(anchor, verdict.claim, verdict.level, problem))
    roles: dict[str, list[Any]] = {}
    for row in table.rows:
        cells = [(cell.verdict, anchors.get((row.claim, n), "")) for n, cell in enumerate(row.cells)]
        roles.setdefault(row.role.replace("_", " "), []).append((row, cells))
    return page(
        "table.html",
        script=True,
        candidates=table.candidates,
        versions=_versions,
        roles=roles,
        totals=_totals(table),
        legend=_legend(table),
        failures={table.candidates[n].name: told for n, told in failures.items()},
        marks=MARKS,
        clean=partial(clean, limit=300),
        labelled=labelled,
    )

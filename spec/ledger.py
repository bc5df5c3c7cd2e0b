"""The ledger of a lesson: every checkable statement of a document, with its verdict and what shows it.

A ledger is TOML (``lessons/*.toml``, held to ``lessons/schema.json``). It is data: nothing in it is run here.
Errors are :class:`SpecError` and name file, row, field, what was found and what is expected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

from .documents import HERE, SpecError, explain, file_name, read_toml, schema_error
from .model import Spec

LESSONS = HERE / "lessons"
Finding = Literal[
    "holds", "wrong", "not reproducible", "holds under a condition", "convention", "not checkable here"
]
FINDINGS: tuple[Finding, ...] = get_args(Finding)
CheckRole = Literal["as stated", "right", "reading", "under", "otherwise", "one", "other"]
# The field that says in words what a verdict means for the row.
WORDS: Mapping[str, str] = {
    "wrong": "right",
    "not reproducible": "right",
    "holds under a condition": "condition",
    "convention": "why",
    "not checkable here": "why",
}


@dataclass(frozen=True)
class Section:
    """A heading of the document, and how much stands below it."""

    heading: str
    tables: int
    snippets: int
    questions: int


@dataclass(frozen=True)
class Check:
    """A small computation: Python that sets ``holds`` to a bool and may set ``shown`` to what came out."""

    role: CheckRole
    code: str


@dataclass(frozen=True)
class Statement:
    """One checkable statement; ``by`` are claims that say just the same, ``see`` claims that rest on it."""

    id: str
    place: str
    kind: str
    says: str
    verdict: Finding
    checks: tuple[Check, ...] = ()
    by: tuple[str, ...] = ()
    see: tuple[str, ...] = ()
    right: str = ""
    condition: str = ""
    why: str = ""
    no_claim: str = ""

    @property
    def words(self) -> str:
        """The correction, the condition or the reason; empty for what plainly holds."""
        return getattr(self, WORDS[self.verdict]) if self.verdict in WORDS else ""


@dataclass(frozen=True)
class Lesson:
    """A document: its sections in order, and its statements."""

    id: str
    title: str
    file: str
    sections: tuple[Section, ...]
    statements: tuple[Statement, ...]


def lesson_files() -> tuple[Path, ...]:
    """The ledgers that come with triu, in a stable order."""
    return tuple(sorted(LESSONS.glob("*.toml")))


def load_lesson(path: Path, spec: Spec) -> Lesson:
    """Read a ledger.

    Raises:
        SpecError: it is missing, is not TOML, breaks the schema, or contradicts itself or the spec.  What
            contradicts is told all at once, a line each.
    """
    document = read_toml(path, "expected the ledger of a lesson, a TOML file")
    error = schema_error(document, LESSONS / "schema.json")
    if error is not None:
        raise SpecError(f"{file_name(path)}: {_explain(error, document)}")
    lesson = _lesson(path, document)
    problems = list(_problems(lesson, spec))
    if problems:
        raise SpecError("\n".join(f"{lesson.file}: {problem}" for problem in problems))
    return lesson


def _explain(error: Any, document: Mapping[str, Any]) -> str:
    path = list(error.absolute_path)
    if path[:1] in (["statement"], ["section"]) and len(path) > 1:
        item = document[path[0]][path[1]]
        name = item.get("id", item.get("heading")) if isinstance(item, dict) else None
        row = "row" if path[0] == "statement" else "section"
        return f"{row} {name or '#' + str(path[1] + 1)}: {explain(error, 2)}"
    return explain(error, 0)


def _lesson(path: Path, document: Mapping[str, Any]) -> Lesson:
    statements = []
    for table in document["statement"]:
        fields: dict[str, Any] = {
            name: tuple(value) if name in ("by", "see") else value for name, value in table.items()
        }
        checks = tuple(Check(check["as"], check["code"]) for check in fields.pop("check", ()))
        statements.append(Statement(checks=checks, **fields))
    return Lesson(
        id=document["lesson"]["id"],
        title=document["lesson"]["title"],
        file=file_name(path),
        sections=tuple(Section(**table) for table in document["section"]),
        statements=tuple(statements),
    )


def _problems(lesson: Lesson, spec: Spec) -> Iterator[str]:
    """What a schema cannot see."""
    headings = [section.heading for section in lesson.sections]
    places = {statement.place for statement in lesson.statements}
    for heading, times in Counter(headings).items():
        if times > 1:
            yield f"section {heading}: stands in the index {times} times; headings are unique"
    for heading in dict.fromkeys(headings):
        if heading not in places:
            yield f"section {heading}: has no row; where nothing can be checked, add one that says so"
    for identity, times in Counter(statement.id for statement in lesson.statements).items():
        if times > 1:
            yield f"row {identity}: field id: used {times} times; ids are unique"
    for statement in lesson.statements:
        for problem in _row_problems(statement, lesson.id, headings, spec):
            yield f"row {statement.id}: {problem}"


def _row_problems(row: Statement, lesson: str, headings: list[str], spec: Spec) -> Iterator[str]:
    if not row.id.startswith(f"{lesson}."):
        yield f"field id: found {row.id!r}, expected {lesson!r}, a dot and a name"
    if row.place not in headings:
        yield f"field place: found {row.place!r}, expected a heading of the index{_near(row.place, headings)}"
    for field, named in (("by", row.by), ("see", row.see)):
        for claim in named:
            if claim not in spec.claims:
                yield f"field {field}: found {claim!r}, expected the id of a claim{_near(claim, spec.claims)}"
    for claim in row.by:
        if claim in row.see:
            yield f"field see: found {claim!r}, which stands under by; expected it in one of the two"
    if row.verdict in WORDS and not row.words:
        yield f"field {WORDS[row.verdict]}: missing; a row with the verdict {row.verdict!r} says it in words"
    if row.verdict == "holds" and not row.by and not row.no_claim:
        yield "field by: missing; name the claims that check it on candidates, or say under no_claim why none can"
    if row.verdict == "not checkable here" and (row.by or row.checks):
        field = "by" if row.by else "check"
        yield f"field {field}: found one, expected none, as the verdict is 'not checkable here'"


def _near(name: str, known: Any) -> str:
    near = get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""

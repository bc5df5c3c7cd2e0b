"""The shape of an audit: what came of each row of a ledger when its claims were judged and its checks were run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .ledger import FINDINGS, Finding, Lesson, Statement

# How a verdict is called before people.
CALLED: Mapping[str, str] = {"not reproducible": "not reproducible as printed"}


def called(finding: str) -> str:
    """The words for a verdict."""
    return CALLED.get(finding, finding)


@dataclass(frozen=True)
class Came:
    """What came of a check: ``holds`` is None where it could not be run, and ``problem`` says why."""

    holds: bool | None
    shown: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Audited:
    """A row with what came out: the verdict that follows (None where none does), and what is not as declared."""

    statement: Statement
    verdict: Finding | None
    claims: Mapping[str, str]  # each claim of ``by``: "passed", or what else it came to on the baseline
    came: tuple[Came, ...]  # in the order of the statement's checks
    problems: tuple[str, ...] = ()

    @property
    def finding(self) -> Finding:
        """The verdict that came out, or the one declared where none did; then there is a problem that says so."""
        return self.verdict or self.statement.verdict


@dataclass(frozen=True)
class AuditedLesson:
    """A lesson with all its rows."""

    lesson: Lesson
    rows: tuple[Audited, ...]

    @property
    def counts(self) -> Mapping[Finding, int]:
        """The number of rows for each verdict."""
        return {f: sum(row.finding == f for row in self.rows) for f in FINDINGS}

    @property
    def problems(self) -> tuple[str, ...]:
        """What did not come out as declared, each with its row."""
        return tuple(f"{row.statement.id}: {problem}" for row in self.rows for problem in row.problems)

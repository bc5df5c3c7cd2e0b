"""The mutants in other people's styles (tests/elsewhere/*.toml): which known mistake triu names for each."""

from __future__ import annotations

import re
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from triu.conformance.api import open_check
from triu.conformance.engine.suspects import suspects_of
from triu.reference.mutants import load_mutants
from triu.spec import Spec, Verdict

TESTS = Path(__file__).parents[1] / "tests"


@dataclass(frozen=True)
class Row:
    """A candidate with a mutant's bug.

    Attributes:
        mutant: whose bug it has.
        file: a file below ``tests``, or below the root.
        changes: what to replace in it, each found once; none if the file has the bug already.
        conventions: declarations for it, a file below ``tests``.
        object: where the file has several of the role.
        named: which mutant is named, if it is not ``mutant``; empty where nothing is.
    """

    mutant: str
    file: str
    changes: tuple[tuple[str, str], ...] = ()
    conventions: str = ""
    object: str = ""
    named: str | None = None

    @property
    def expected(self) -> str:
        return self.mutant if self.named is None else self.named

    @property
    def by_chance(self) -> bool:
        """Whether what it does differs from run to run, so that its mistake is not named in every one."""
        draws = re.search(r"np\.random|default_rng|import random|multinomial|torch\.rand", self.text())
        return "dropout" in self.mutant or bool(draws)

    def text(self) -> str:
        """The candidate's source.  Raises ValueError where a change has no place, or several."""
        path = TESTS / self.file
        text = (path if path.exists() else TESTS.parent / self.file).read_text("utf-8")
        for old, new in self.changes:
            if text.count(old) != 1:
                raise ValueError(f"{self.mutant}: {old!r} occurs {text.count(old)} times in {self.file}")
            text = text.replace(old, new)
        return text


@dataclass(frozen=True)
class Outcome:
    """What came of a candidate: the mistakes named, in order, and the verdicts on its role."""

    named: tuple[str, ...]
    verdicts: tuple[Verdict, ...] = field(repr=False, default=())

    @property
    def broken(self) -> tuple[str, ...]:
        return tuple(v.claim for v in self.verdicts if v.verdict in ("failed", "errored"))


def rows() -> tuple[Row, ...]:
    """All candidates."""
    return tuple(
        _row(table)
        for path in sorted((TESTS / "elsewhere").glob("*.toml"))
        for table in tomllib.loads(path.read_text("utf-8"))["row"]
    )


def _row(table: Mapping[str, Any]) -> Row:
    changes = tuple((old, new) for old, new in table.get("changes", ()))
    return Row(**{**table, "changes": changes})


def judge(row: Row, spec: Spec, seed: int = 0, *, unknown: bool = False) -> Outcome:
    """Check a candidate on the claims of the mutant's role, in this process.

    With ``unknown`` as if its own mutant did not exist: then whatever is named is another mistake.
    """
    suspects_of(spec).without = row.mutant if unknown else ""
    role = spec.claims[load_mutants()[row.mutant].claim].role
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / Path(row.file).name
        path.write_text(row.text(), "utf-8")
        declared = TESTS / row.conventions if row.conventions else None
        check = open_check(path, spec=spec, seed=seed, in_process=True, conventions=declared)
        report = check.report([claim for claim in spec.claims.values() if claim.role == role])
        check.close()
    own = tuple(v for v in report.verdicts if not row.object or v.object == row.object)
    likely = (v.failure.likely for v in own if v.failure is not None)
    names = dict.fromkeys(found.mutant for found in likely if found is not None)
    return Outcome(tuple(name for name in names if not (unknown and name == row.mutant)), own)

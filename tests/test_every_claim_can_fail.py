"""Every claim of the spec is failed by some wrong implementation, on its own account.

A claim that nothing can fail proves nothing when it passes, and one that is always blocked by another is
a claim in name only.  Most claims are shown by a mutant (``tests/test_mutants.py``).  For the others each row of the
tables in tests/broken/*.toml names a claim, a small wrong implementation beside it that fails it, and a claim that the
same implementation still passes: it is wrong, not garbage.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from triu.conformance.api import Check, open_check
from triu.spec import load_spec

ROOT = Path(__file__).parents[1]
BROKEN = ROOT / "tests" / "broken"
SPEC = load_spec()


@dataclass(frozen=True)
class Row:
    claim: str
    file: str
    passes: str = ""  # a claim on the same object that the mistake does not touch
    verdict: str = "failed"
    object: str = ""  # where the file has several
    conventions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)  # the first of them that shows a rare fault


def _row(table: dict[str, Any]) -> Row:
    return Row(**{**table, "seeds": tuple(table.get("seeds", (0,)))})


ROWS = tuple(
    _row(table)
    for path in sorted(BROKEN.glob("*.toml"))
    for table in tomllib.loads(path.read_text("utf-8"))["row"]
)


@pytest.fixture(scope="module")
def checks() -> Iterator[dict[tuple[str, int], Check]]:
    """The files opened so far."""
    opened: dict[tuple[str, int], Check] = {}
    yield opened
    for check in opened.values():
        check.close()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.claim}-{row.file}")
def test_claim_fails(row: Row, checks: dict[tuple[str, int], Check]) -> None:
    found: dict[str, str] = {}
    for seed in row.seeds:
        check = checks.get((row.file, seed))
        if check is None:
            path = BROKEN / f"{row.file}.py"
            check = open_check(
                path, spec=SPEC, in_process=True, examples=24, seed=seed, conventions=row.conventions
            )
            checks[row.file, seed] = check
        verdicts = check.engine.verdicts(check.spec.claims[row.claim])
        found = {v.object: v.verdict for v in verdicts if row.object in ("", v.object)}
        if set(found.values()) == {row.verdict}:
            break
    assert set(found.values()) == {row.verdict}, [(v.verdict, v.reason, v.failure) for v in verdicts]
    for verdict in verdicts:
        if verdict.failure is not None:
            assert verdict.failure.what
            assert verdict.failure.hint
    if row.passes:
        untouched = check.engine.verdicts(check.spec.claims[row.passes])
        assert {v.verdict for v in untouched} == {"passed"}, [
            (v.verdict, v.reason, v.failure) for v in untouched
        ]


def test_every_claim_is_shown_by_a_mutant_or_has_a_row() -> None:
    table = json.loads((ROOT / "reference" / "mutants" / "kills.json").read_text("utf-8"))
    shown = {claim for found in table.values() for claim in found["shown"]}
    rows = {row.claim for row in ROWS}
    assert shown | rows == set(SPEC.claims)
    assert not shown & rows, "a mutant shows it, so that the row is not needed"


def test_every_file_is_used() -> None:
    styles = [
        row["file"]
        for path in (ROOT / "tests" / "elsewhere").glob("*.toml")
        for row in tomllib.loads(path.read_text("utf-8"))["row"]
    ]
    used = {row.file for row in ROWS} | {Path(file).stem for file in styles if file.startswith("broken/")}
    assert used == {path.stem for path in BROKEN.glob("*.py")}

"""docs/lesson-coverage.md stays true: its claims exist, and every claim that cites a lesson stands in its table."""

import re
from pathlib import Path

import pytest
from triu.spec import load_spec

LESSONS = ("lesson-85", "notes-decoder", "class-7")
SPEC = load_spec()

Row = tuple[str, tuple[str, ...], str]  # where, claims, left open


def _tables() -> dict[str, list[Row]]:
    text = (Path(__file__).parents[1] / "docs" / "lesson-coverage.md").read_text("utf-8")
    tables: dict[str, list[Row]] = {}
    for section in text.split("\n## ")[1:]:
        name, *lines = section.splitlines()
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
        tables[name] = [
            (where, tuple(re.findall(r"`([^`]+)`", claims)), left_open)
            for where, _, claims, left_open in cells[2:]  # below the heading and its rule
        ]
    return tables


TABLES = _tables()


def test_there_is_one_table_for_each_lesson():
    assert tuple(TABLES) == LESSONS


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_claim_that_is_named_exists(lesson):
    named = {claim for _, claims, _ in TABLES[lesson] for claim in claims}
    assert not named - SPEC.claims.keys()


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_claim_that_cites_the_lesson_stands_in_its_table(lesson):
    named = {claim for _, claims, _ in TABLES[lesson] for claim in claims}
    citing = {c.id for c in SPEC.claims.values() if any(s.startswith(f"{lesson}:") for s in c.source)}
    assert not citing - named, "add them to a row of docs/lesson-coverage.md"


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_row_without_claims_says_why(lesson):
    assert not [where for where, claims, left_open in TABLES[lesson] if not claims and not left_open]


def test_every_lesson_that_is_cited_has_a_table():
    cited = {source.split(":")[0] for claim in SPEC.claims.values() for source in claim.source}
    assert cited <= {*LESSONS, "pytorch", "paper"}

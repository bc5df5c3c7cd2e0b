"""The conformance table: claims by candidates, stable in order, honest about what was not judged."""

import csv
import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from triu.conformance import check
from triu.reports import to_json
from triu.reports.table import table_csv, table_html, table_json, table_markdown, table_text, tabled

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
BROKEN = HERE / "pages" / "broken.py"
HOSTILE = "<script>alert(1)</script>|`x`\x1b[31m\n[a](javascript:b)"


def triu(*arguments, **options):
    command = [sys.executable, "-m", "triu.conformance", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def columns():
    claims = ["causal-mask.*", "positional-encoding.*", "attention.s*"]
    return [
        ("baseline", check("baseline", claims=claims)),
        ("torch", check("torch", claims=claims)),
        ("tests/pages/broken.py", check(BROKEN, claims=claims)),
    ]


@pytest.fixture(scope="module")
def table(columns):
    return tabled(columns)


def cell(table, claim, name):
    n = [candidate.name for candidate in table.candidates].index(name)
    return next(row for row in table.rows if row.claim == claim).cells[n].verdict


def test_unsupported_failed_and_passed_are_three_things(table):
    assert cell(table, "causal-mask.total", "baseline") == "passed"
    assert cell(table, "causal-mask.total", "broken") == "failed"
    assert cell(table, "positional-encoding.zero", "torch") == "unsupported"
    told = {line.split()[1] for line in table_text(table).split("\n") if line.startswith("MUST")}
    assert {"✓", "✗", "–"} <= told


def test_totals_are_counted_for_each_level(table, columns):
    for n, (_, report) in enumerate(columns):
        for level, counts in table.totals.items():
            claims = {v.claim for v in report.verdicts if v.level == level}
            assert sum(counts[n].values()) == len(claims)
    failed = {v.claim for v in columns[2][1].verdicts if v.level == "MUST" and v.verdict == "failed"}
    assert table.totals["MUST"][2]["failed"] == len(failed) > 0


def test_claims_that_concern_nobody_have_no_row_and_are_counted(columns):
    alone = tabled([columns[1]])
    assert not any(row.claim.startswith("positional") for row in alone.rows)
    assert alone.idle >= 20
    assert f"{alone.idle} claims concern none of them" in " ".join(table_text(alone).split())


def test_the_order_does_not_depend_on_the_order_of_candidates(columns):
    rows = [row.claim for row in tabled(columns).rows]
    assert [row.claim for row in tabled(columns[::-1]).rows] == rows


def test_the_worst_object_decides_a_cell(columns):
    report = columns[0][1]
    verdict = next(v for v in report.verdicts if v.claim == "causal-mask.total")
    worse = replace(report, verdicts=(*report.verdicts, replace(verdict, object="other", verdict="errored")))
    assert cell(tabled([("both", worse)]), "causal-mask.total", "both") == "errored"


def test_equal_names_are_told_apart(columns):
    report = columns[0][1]
    names = [
        c.name
        for c in tabled([("a/x.py", report), ("b/x.py", report), ("y", report), ("y", report)]).candidates
    ]
    assert names == ["a/x.py", "b/x.py", "y (3)", "y (4)"]


def test_a_candidate_has_its_version_and_that_of_torch(table):
    broken = table.candidates[2]
    assert re.fullmatch(r"sha256 [0-9a-f]{12}", broken.version)
    assert broken.versions["torch"]


def test_csv_and_json_hold_the_same_verdicts(table):
    rows = list(csv.DictReader(io.StringIO(table_csv(table).removeprefix("\ufeff"))))
    document = json.loads(table_json(table))
    names = [candidate["name"] for candidate in document["candidates"]]
    assert [[row[name] or None for name in names] for row in rows] == [
        c["verdicts"] for c in document["claims"]
    ]
    assert len(rows) == len(table.rows)


def test_failures_are_one_click_away(table, columns):
    for text in (table_html(table, columns), table_markdown(table)):
        links = set(re.findall(r"(?:href=\"|\]\()#(failure-[\d-]+)", text))
        anchors = set(re.findall(r" id=\"(failure-[\d-]+)\"", text))
        assert links
        assert links <= anchors


def test_what_a_candidate_wrote_is_no_markup(columns):
    report = columns[2][1]
    failed = next(v for v in report.verdicts if v.verdict == "failed")
    evil = replace(failed, object=HOSTILE, title=HOSTILE, failure=replace(failed.failure, what=HOSTILE))
    evil_columns = [(HOSTILE, replace(report, verdicts=(evil,))), ("gone", HOSTILE)]
    table = tabled(evil_columns)
    assert "<script>alert" not in table_html(table, evil_columns)
    text = table_markdown(table)
    assert "<script>" not in text
    assert "](javascript" not in text
    assert "\x1b" not in table_text(table) + text


def test_from_targets_and_from_stored_reports_it_is_the_same_table(tmp_path):
    kept = {}
    for name, target in (("a.json", "baseline"), ("b.json", str(BROKEN))):
        (tmp_path / name).write_text(to_json(check(target, claims="causal-mask.*")), "utf-8")
        kept[name] = tmp_path / name
    fresh = triu("table", "baseline", BROKEN, "--claims", "causal-mask.*", "--json", tmp_path / "fresh")
    reports = ("--from", kept["a.json"], kept["b.json"])
    stored = triu("table", *reports, "--claims", "causal-mask.*", "--json", tmp_path / "stored")
    assert (fresh.returncode, stored.returncode) == (0, 0)
    assert (tmp_path / "fresh").read_text("utf-8") == (tmp_path / "stored").read_text("utf-8")


def test_what_cannot_be_judged_has_a_column_that_says_why(tmp_path):
    (tmp_path / "half.json").write_text('{"format": 3, "verd')
    done = triu(
        *("table", "baseline", "nope.py", tmp_path / "half.json", "--claims", "causal-mask.five"),
        *("--markdown", tmp_path / "t.md"),
    )
    assert done.returncode == 2
    assert "nope.py: no such file or folder" in done.stderr
    assert "cut short" in done.stderr
    assert "not judged" in (tmp_path / "t.md").read_text("utf-8")
    assert re.search(r"causal-mask.five: .*\s✓", done.stdout)


def test_claims_that_no_report_has_are_no_empty_table(tmp_path):
    (tmp_path / "a.json").write_text(to_json(check("baseline", claims="causal-mask.five")), "utf-8")
    done = triu("table", tmp_path / "a.json", "--claims", "nothing.*")
    assert done.returncode == 2
    assert "no claim matches" in done.stderr


def test_without_a_target_it_says_what_to_do():
    done = triu("table")
    assert done.returncode == 2
    assert "triu table baseline submission.py" in done.stderr


def test_a_verdict_on_some_claims_says_so(tmp_path):
    (tmp_path / "a.json").write_text(to_json(check(BROKEN, claims="causal-mask.*,attention.s*")), "utf-8")
    done = triu("table", tmp_path / "a.json", "--claims", "attention.shape")
    assert "conforms on these claims" in done.stdout
    assert "does not conform (" in triu("table", tmp_path / "a.json").stdout

"""The audit: the ledgers come out as declared, its documents are up to date, and it can fail."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from functools import cache
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from triu.conformance.audit import Judge, audit, computed, run_check
from triu.conformance.cli import main
from triu.reports.audit import audit_json, audit_text
from triu.reports.audit_html import audit_html
from triu.reports.audit_markdown import audit_markdown
from triu.reports.coverage import coverage_markdown
from triu.spec import FINDINGS, AuditedLesson, Check, Lesson, SpecError, lesson_files, load_lesson, load_spec

DOCS = Path(__file__).parents[1] / "docs"
SPEC = load_spec()
LESSONS = {path.stem: load_lesson(path, SPEC) for path in lesson_files()}
JUDGE = Judge(SPEC)


@cache
def audited(lesson: str) -> AuditedLesson:
    return audit(LESSONS[lesson], JUDGE)


def rows_of(lesson: str, claim: str):
    return [row for row in LESSONS[lesson].statements if claim in (*row.by, *row.see)]


CITATIONS = [
    (claim, *source.split(": ", 1))
    for claim, value in SPEC.claims.items()
    for source in value.source
    if source.split(":")[0] in LESSONS
]


# The ledgers that come with triu


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_ledger_comes_out_as_declared(lesson):
    assert not audited(lesson).problems


NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def differ(one: str, other: str) -> list[str]:
    """The lines in which two texts differ by more than rounding, which is not the same on all processors."""
    pairs = zip_longest(one.split("\n"), other.split("\n"), fillvalue="")
    return [a for a, b in pairs if NUMBER.sub("#", a) != NUMBER.sub("#", b) or not close(a, b)]


def close(one: str, other: str) -> bool:
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(abs(float(a) - float(b)) <= 1e-4 + 1e-2 * abs(float(b)) * ("." in a) for a, b in pairs)


def test_rounding_is_no_difference_and_another_number_is():
    assert not differ("shown 3.0e-08, 0.26894143 of 5", "shown 0, 0.26894144 of 5")
    assert differ("0.333 of 5", "0.433 of 5")
    assert differ("0.333 of 5", "0.333 of 6")
    assert differ("a 0.333", "b 0.333")
    assert differ("a", "a\nb")


def test_the_page_for_authors_is_up_to_date():
    page = (DOCS / "lesson-audit.md").read_text("utf-8")
    assert not differ(audit_markdown([audited(lesson) for lesson in LESSONS]), page), "run `make audit`"


def test_the_page_of_coverage_is_up_to_date():
    page = (DOCS / "coverage.md").read_text("utf-8")
    assert coverage_markdown(SPEC, list(LESSONS.values())) == page, "run `make audit`"


# Each claim of the spec is traced to its statement


def test_every_lesson_that_is_cited_has_a_ledger():
    cited = {source.split(":")[0] for claim in SPEC.claims.values() for source in claim.source}
    assert cited <= {*LESSONS, "pytorch", "paper"}


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_claim_that_cites_a_lesson_is_named_by_a_row_of_it(lesson):
    missing = {claim for claim, cited, _ in CITATIONS if cited == lesson and not rows_of(lesson, claim)}
    assert not missing, "name them under `by` or `see` of the row that they rest on"


def words(text: str) -> set[str]:
    text = re.sub(r"practice questions? (\d+)", r"q\1", text.lower())
    small = set(
        "a all an and are as at be by can each for from have in is it its no not of on one or per".split()
    )
    return (
        {word.rstrip("s") for word in re.findall(r"\w+", text)} - small - {"that", "the", "thi", "to", "with"}
    )


@pytest.mark.parametrize("lesson", LESSONS)
def test_what_a_claim_cites_is_found_in_a_row_that_names_it(lesson):
    """At least a third of the words of a citation stand in the heading or the statement of such a row."""
    lost = []
    for claim, cited, place in CITATIONS:
        if cited == lesson:
            wanted = words(place)
            found = [words(f"{row.place} {row.says}") & wanted for row in rows_of(lesson, claim)]
            if 3 * max(map(len, found), default=0) < len(wanted):
                lost.append((claim, place))
    assert not lost, "cite the section of the ledger, or name the claim in a row of the section that is cited"


# A small ledger, and what becomes of it

SECTION = '[[section]]\nheading = "{}"\ntables = 0\nsnippets = 0\nquestions = 0\n'
CODE = "holds = abs(2.0**0.5 - 1.414) < 0.0005\nshown = str(2.0**0.5)"
LEDGER = f"""
[lesson]
id = "roots"
title = "Roots"

[[section]]
heading = "Square roots"
tables = 0
snippets = 1
questions = 0

[[statement]]
id = "roots.of-two"
place = "Square roots"
kind = "number"
says = "The root of 2 is 1.414."
verdict = "holds"
no_claim = "Arithmetic."
[[statement.check]]
as = "as stated"
code = '''
{CODE}
'''

[[statement]]
id = "roots.causal"
place = "Square roots"
kind = "rule"
says = "A causal mask is a triangle."
verdict = "holds"
by = ["causal-mask.pattern"]
"""


def ledger(folder: Path, *changes: tuple[str, str]) -> Path:
    text = LEDGER
    for before, after in changes:
        assert before in text
        text = text.replace(before, after, 1)
    path = folder / "roots.toml"
    path.write_text(text, "utf-8")
    return path


def loaded(folder: Path, *changes: tuple[str, str]) -> Lesson:
    return load_lesson(ledger(folder, *changes), SPEC)


def passes(claim: str) -> str:
    return "passed"


def problems(lesson: Lesson, judge=passes) -> str:
    return "\n".join(audit(lesson, judge).problems)


def test_a_ledger_that_is_right_has_no_problems(tmp_path):
    assert not problems(loaded(tmp_path))


@pytest.mark.parametrize(
    ("before", "after"),
    [("1.414)", "1.424)"), ("2.0**0.5 -", "2.0**0.25 -"), ("< 0.0005", "> 0.0005")],
    ids=["a number", "a formula", "a comparison"],
)
def test_a_check_that_comes_out_otherwise_is_reported(tmp_path, before, after):
    told = problems(loaded(tmp_path, (before, after)))
    assert (
        told
        == "roots.of-two: declared 'holds', but it comes to 'not reproducible as printed' (as stated: false)"
    )


@pytest.mark.parametrize("finding", [finding for finding in FINDINGS if finding != "holds"])
def test_a_verdict_that_is_typed_in_is_reported(tmp_path, finding):
    lesson = loaded(tmp_path)
    changed = replace(lesson.statements[0], verdict=finding)
    told = problems(replace(lesson, statements=(changed,)))
    assert "declared" in told
    assert "comes to 'holds'" in told


def test_a_claim_that_fails_on_the_baseline_is_reported(tmp_path):
    told = problems(loaded(tmp_path), lambda claim: "failed")
    assert "roots.causal: claim causal-mask.pattern: failed on the baseline, expected passed" in told
    assert "declared 'holds'" in told


@pytest.mark.parametrize("verdict", ["failed", "errored", "inconclusive", "unsupported"])
def test_a_baseline_that_does_not_pass_is_no_evidence(monkeypatch, verdict):
    from triu.conformance.engine.run import Engine

    real = Engine.verdicts
    monkeypatch.setattr(
        Engine, "verdicts", lambda *given: [replace(v, verdict=verdict) for v in real(*given)]
    )
    judge = Judge(SPEC)
    assert judge("causal-mask.pattern") == verdict
    judge.close()


def test_a_claim_that_says_a_statement_as_it_stands_is_no_evidence_for_a_condition(tmp_path):
    checks = "".join(
        f"[[statement.check]]\nas = '{role}'\ncode = 'holds = {told}'\n"
        for role, told in (("under", "bool(1)"), ("otherwise", "bool(0)"))
    )
    lesson = loaded(
        tmp_path,
        ('"holds"\nby', '"holds under a condition"\ncondition = "In one."\nby'),
        ('pattern"]\n', f'pattern"]\n{checks}'),
    )
    assert "it comes to no verdict (as stated: true; under: true; otherwise: false)" in problems(lesson)
    assert "claim causal-mask.pattern: failed" in problems(lesson, lambda claim: "failed")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import math\nmath.sqroot(2)", "line 2, `math.sqroot(2)`: AttributeError: "),
        ("holds = (1\nshown = ''", "line 1, `holds = (1`: SyntaxError: "),
        ("raise SystemExit(3)", "line 1, `raise SystemExit(3)`: SystemExit: 3"),
        ("import numpy\nholds = numpy.bool_(True)", "found "),
        ("import torch\nholds = torch.tensor(True)", "found tensor(True) of type Tensor in `holds`"),
        ("shown = 'nothing'", "found nothing in `holds`"),
    ],
)
def test_a_check_that_cannot_be_judged_is_told_with_its_row_and_line(tmp_path, code, told):
    lesson = loaded(tmp_path, (CODE, code))
    assert f"roots.of-two: check 1 (as stated): {told}" in problems(lesson)


def test_a_check_finds_the_same_state_each_time_and_leaves_it_as_it_was(capsys):
    torch.manual_seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    code = (
        "import random, torch, numpy as np, warnings\n"
        "shown = str((torch.rand(1).item(), np.random.rand(), random.random(), torch.get_default_dtype()))\n"
        "torch.set_default_dtype(torch.float64); torch.set_grad_enabled(False); torch.set_num_threads(2)\n"
        "np.set_printoptions(precision=1); warnings.warn('aside'); print('aside')\n"
        "holds = 'other' not in globals(); other = 1"
    )
    first, second = (run_check(Check("as stated", code), "row") for _ in range(2))
    assert first == second
    assert first.holds
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert torch.get_num_threads() == 1
    assert np.get_printoptions()["precision"] == 8
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert random.getstate() == before[2]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("results", "finding"),
    [
        ({"as stated": [True, True]}, "holds"),
        ({"as stated": [True], "right": [False]}, None),
        ({"as stated": [True], "reading": [False]}, None),
        ({"as stated": [False], "right": [True], "reading": [True]}, "wrong"),
        ({"as stated": [False], "right": [True], "reading": [False]}, None),
        ({"as stated": [True], "under": [True], "otherwise": [False]}, None),
        ({"under": [True], "otherwise": [False], "one": [False]}, None),
        ({"one": [True], "other": [True], "right": [False]}, None),
        ({"as stated": [True, False]}, None),
        ({"as stated": [False], "right": [True]}, "wrong"),
        ({"as stated": [False], "right": [True, False]}, None),
        ({"as stated": [True, False], "right": [True]}, None),
        ({"as stated": [False]}, "not reproducible"),
        ({"as stated": [False], "reading": [True]}, "not reproducible"),
        ({"as stated": [False], "reading": [False]}, None),
        ({"right": [True]}, None),
        ({"under": [True], "otherwise": [False]}, "holds under a condition"),
        ({"under": [True], "otherwise": [True]}, None),
        ({"under": [True]}, None),
        ({"otherwise": [False]}, None),
        ({"one": [True], "other": [True]}, "convention"),
        ({"one": [True], "other": [False]}, None),
        ({"one": [True]}, None),
        ({}, None),
    ],
)
def test_a_verdict_follows_from_the_results_by_role(results, finding):
    assert computed(results) == finding


# What is wrong with a ledger is told


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('id = "roots.causal"', 'id = "roots.of-two"', "row roots.of-two: field id: used 2 times"),
        ('id = "roots.causal"', 'id = "root.causal"', "row root.causal: field id: found 'root.causal', expected"),
        ("causal-mask.pattern", "causal-mask.patern", "field by: found 'causal-mask.patern'"),
        ("causal-mask.pattern", "causal-mask.patern", "did you mean 'causal-mask.pattern'?"),
        ('place = "Square roots"', 'place = "Roots"', "row roots.of-two: field place: found 'Roots', expected a"),
        ('no_claim = "Arithmetic."', "", "row roots.of-two: field by: missing"),
        ('"holds"\nno_claim', '"wrong"\nno_claim', "row roots.of-two: field right: missing"),
        ('"holds"\nno_claim', '"not reproducible"\nno_claim', "row roots.of-two: field right: missing"),
        ('"holds"\nno_claim', '"holds under a condition"\nno_claim', "field condition: missing"),
        ('"holds"\nno_claim', '"convention"\nno_claim', "row roots.of-two: field why: missing"),
        ('"holds"\nno_claim', '"not checkable here"\nwhy', "row roots.of-two: field check: found one, expected none"),
        ('"holds"\nby', '"not checkable here"\nwhy = "No."\nby', "row roots.causal: field by: found one, expected"),
        ('by = ["causal', 'see = ["causal-mask.pattern"]\nby = ["causal', "row roots.causal: field see: found"),
        ("[[statement]]", SECTION.format("Cubes") + "[[statement]]", "section Cubes: has no row"),
        ("[[statement]]", SECTION.format("Square roots") + "[[statement]]", "section Square roots: stands in"),
        ('kind = "number"', 'kind = "digit"', 'row roots.of-two: field kind: found "digit", expected one of'),
        ('verdict = "holds"', 'verdict = "right"', 'row roots.of-two: field verdict: found "right", expected one of'),
        ('as = "as stated"', 'as = "stated"', 'row roots.of-two: field check.0.as: found "stated", expected one of'),
        ("no_claim", "noclaim", "row roots.of-two: unknown field noclaim; did you mean no_claim?"),
        ('says = "The root of 2 is 1.414."\n', "", "row roots.of-two: missing field says"),
        ("snippets = 1", "snippets = -1", "section Square roots: field snippets: found -1"),
        ("[lesson]", "[lesson", "is not TOML"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_ledger_is_told_with_file_row_field_and_what_is_expected(
    tmp_path, before, after, told
):
    with pytest.raises(SpecError) as error:
        loaded(tmp_path, (before, after))
    assert str(tmp_path / "roots.toml") in str(error.value)
    assert told in str(error.value)


def test_all_contradictions_are_told_at_once(tmp_path):
    with pytest.raises(SpecError) as error:
        loaded(tmp_path, ("causal-mask.pattern", "nothing"), ('no_claim = "Arithmetic."', ""))
    assert len(str(error.value).splitlines()) == 2


# The command, and what it writes


def run(*arguments: object):
    return CliRunner().invoke(main, ["audit", *map(str, arguments)], env={"COLUMNS": "100"})


def test_a_ledger_that_comes_out_ends_with_status_0_and_a_summary_first(tmp_path):
    result = run(ledger(tmp_path))
    assert result.exit_code == 0
    assert result.stdout.startswith(
        "1 document with 1 section (0 tables, 1 snippet, 0 questions): 2 statements"
    )
    assert "✓ Every row comes out as its ledger declares it." in result.stdout
    assert "computed: 1.4142135623730951" in result.stdout.replace("\n", " ")


def test_a_ledger_that_does_not_come_out_ends_with_status_1(tmp_path):
    result = run(ledger(tmp_path, ("1.414)", "1.424)")), "--quiet")
    assert result.exit_code == 1
    assert "✗ 1 row does not come out as declared" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["lesson-86"],
            "triu: no lesson 'lesson-86'; expected class-7, lesson-85, notes-decoder or a TOML file",
        ),
        (
            ["lesson-85", "--coverage", "x.md"],
            "triu: --coverage goes through all lessons; leave DOCUMENT out",
        ),
    ],
)
def test_what_cannot_be_audited_ends_with_status_2(arguments, told):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.strip() == told


def test_a_ledger_with_a_mistake_ends_with_status_2(tmp_path):
    result = run(ledger(tmp_path, ("causal-mask.pattern", "nothing")))
    assert result.exit_code == 2
    assert "row roots.causal: field by" in result.stderr


def test_only_the_rows_with_the_verdicts_that_were_asked_for_are_printed(tmp_path):
    path = ledger(tmp_path, ("1.414)", "1.424)"))
    assert "A causal mask" not in run(path, "--verdict", "not reproducible").stdout
    assert "The root of 2" in run(path, "--verdict", "not reproducible").stdout
    assert "The root of 2" not in run(path, "--verdict", "wrong", "--verdict", "holds").stdout


def test_no_line_is_wider_than_it_may_be(tmp_path):
    rows = audit(loaded(tmp_path, ("A causal mask", "A causal mask " + "of many words " * 30)), passes)
    for width in (60, 80, 120):
        assert max(map(len, audit_text([rows], FINDINGS, width=width).splitlines())) <= width


def test_every_form_is_written(tmp_path):
    forms = ("html", "json", "markdown")
    options = [part for form in forms for part in (f"--{form}", tmp_path / f"audit.{form}")]
    assert run(ledger(tmp_path), *options).exit_code == 0
    assert all("The root of 2 is 1.414." in (tmp_path / f"audit.{form}").read_text("utf-8") for form in forms)


def test_a_file_that_cannot_be_written_ends_with_status_2(tmp_path):
    assert run(ledger(tmp_path), "--json", tmp_path / "nowhere" / "audit.json").exit_code == 2


def test_the_data_has_verdicts_results_and_programs(tmp_path):
    document = json.loads(audit_json([audit(loaded(tmp_path, ("1.414)", "1.424)")), passes)]))
    assert document["format"] == 1
    assert document["as_declared"] is False
    first, second = document["documents"][0]["statements"]
    assert (first["verdict"], first["declared"]) == ("not reproducible", "holds")
    assert first["checks"][0]["holds"] is False
    assert first["checks"][0]["code"].startswith("holds = abs(")
    assert second["claims"] == {"causal-mask.pattern": "passed"}


def test_what_a_ledger_says_is_no_markup(tmp_path):
    rows = audit(loaded(tmp_path, ("The root of 2", "<script>*x* | [y](z)</script> The root")), passes)
    assert "<script>*x*" not in audit_html([rows])
    assert r"\<script\>\*x\* \| \[y\](z)" in audit_markdown([rows])

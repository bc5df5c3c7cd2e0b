"""Reports: the same seed gives the same bytes, what was written can be read, snippets reproduce."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from triu.conformance import check
from triu.reports import from_json, to_json, to_markdown, to_text
from triu.reports.safe import clean

EXAMPLES = Path(__file__).parents[1] / "examples"


def triu(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "triu.conformance", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
    )


@pytest.fixture(scope="module")
def broken():
    return check(EXAMPLES / "softmax_then_zero.py", seed=7)


def test_the_same_seed_gives_the_same_report_to_the_byte(tmp_path, broken):
    for name in ("first", "second"):
        triu("check", EXAMPLES / "softmax_then_zero.py", "--seed", 7, "--json", tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    assert (tmp_path / "first").read_text("utf-8") == to_json(broken)


def test_another_seed_gives_the_same_verdicts(broken):
    other = check(EXAMPLES / "softmax_then_zero.py", seed=8)
    assert [(v.claim, v.verdict) for v in other.verdicts] == [(v.claim, v.verdict) for v in broken.verdicts]


def test_reading_back_what_was_written_gives_the_same_report(broken):
    assert to_json(from_json(to_json(broken))) == to_json(broken)


def test_the_json_has_what_a_grader_needs(broken):
    document = json.loads(to_json(broken))
    assert document["conforms"] is False
    assert {"seed", "candidate", "binding", "environment", "counts", "verdicts"} <= document.keys()
    failed = next(v for v in document["verdicts"] if v["verdict"] == "failed")
    assert {"claim", "role", "level", "object", "verdict", "evidence", "margin", "failure"} <= failed.keys()
    assert failed["failure"]["case"]["T"] == 1


def test_half_a_report_is_recognised(broken):
    with pytest.raises(ValueError):
        from_json(to_json(broken)[:-200])
    with pytest.raises(ValueError):
        from_json("{}")


def test_the_snippet_of_a_failure_reproduces_it_with_the_candidate_alone(broken):
    failure = next(v.failure for v in broken.verdicts if v.verdict == "failed")
    run = subprocess.run(
        [sys.executable, "-c", failure.snippet], capture_output=True, text=True, cwd=EXAMPLES
    )
    assert run.returncode == 0, run.stderr
    assert (
        f"{failure.observed[0][0] if isinstance(failure.observed[0], list) else failure.observed[0]:.3f}"
        in run.stdout
    )


@pytest.mark.parametrize("width", [60, 100, 160])
def test_text_keeps_to_the_width_but_for_code_to_paste(broken, width):
    lines = to_text(broken, width=width).split("\n")
    code = ("import", "from ", "print(", "query", "key =", "value =", "mask =")
    assert all(len(line) <= width or line.strip().startswith(code) for line in lines)


def test_text_says_expected_and_observed_beside_each_other(broken):
    text = to_text(broken)
    assert "does not conform" in text.split("\n")[0]
    assert "expected" in text
    assert "smallest case" in text


def test_what_a_candidate_wrote_is_neither_markup_nor_an_escape_sequence():
    assert "\x1b" not in clean("\x1b[31mred\x1b[0m")
    assert "\u202e" not in clean("a\u202eb")
    report = check("numpy", in_process=True, claims="causal-mask.five")
    hostile = report.__class__(
        **{**report.__dict__, "candidate": {"target": "<script>*x*</script>\n# heading"}}
    )
    head = to_markdown(hostile).split("\n")[0]
    assert head.startswith("# \\<script\\>")
    assert "\\#" in head

"""Hostile and broken submissions: none is a pass, none stops the batch, none reaches what is not its own.

After each of them a good one is graded, in the same pool of processes.
"""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from decimal import Decimal
from pathlib import Path

import pytest
from triu.conformance.grading import batch
from triu.conformance.grading.confine import ALL_LAYERS
from triu.conformance.grading.submissions import find_submissions
from triu.reports.grade_json import grade_from_json
from triu.spec import Grade

HOSTILE = Path(__file__).parent / "hostile"
EXPECTED = tomllib.loads((HOSTILE / "expected.toml").read_text("utf-8"))
GOOD = "import torch\n\n\ndef build_causal_mask(T):\n    return torch.ones(T, T, dtype=torch.bool).triu(1)\n"
SECRET = "the-teachers-secret-3141592"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="confinement is Linux's")


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Grade], Path]:
    """All of them in one batch, in the order of their names, a good one after each."""
    root = tmp_path_factory.mktemp("hostile")
    folder, out = root / "submissions", root / "out"
    folder.mkdir()
    out.mkdir()
    for name in EXPECTED:
        shutil.copy(HOSTILE / f"{name}.py", folder / f"{name}.py")
        (folder / f"{name}_after.py").write_text(GOOD)
    os.environ["TRIU_TEST_SECRET"] = SECRET
    order = batch.Order(str(HOSTILE / "profile.toml"), (), SECRET.encode(), 6, "auto")
    submissions, _ = find_submissions(folder)
    batch.run(submissions, order, out, batch.local(3))
    del os.environ["TRIU_TEST_SECRET"]
    texts = (path.read_text("utf-8") for path in out.glob("submissions/*/report.json"))
    return {grade.submission: grade for grade in map(grade_from_json, texts)}, root


def test_every_file_is_expected() -> None:
    assert set(EXPECTED) == {path.stem for path in HOSTILE.glob("*.py")}
    assert len(EXPECTED) >= 30


@pytest.mark.parametrize("name", EXPECTED)
def test_what_comes_of_it(name: str, graded: tuple[dict[str, Grade], Path]) -> None:
    found, expected = graded[0][name], EXPECTED[name]
    failures = [v.failure for item in found.items for v in item.verdicts if v.failure is not None]
    if "below" in expected:
        assert found.score < expected["below"]
    elif "word" in expected:
        assert (found.status, found.word) == ("ungradable", expected["word"]), found.reason
        assert found.reason
    else:
        assert found.status == "graded", (found.word, found.reason)
        assert found.score == Decimal(str(expected["score"])), [f.what for f in failures]
    if "says" in expected:
        assert any(expected["says"] in failure.what for failure in failures), [f.what for f in failures]
    if "prints" in expected:
        assert expected["prints"] in found.output


@pytest.mark.parametrize("name", EXPECTED)
def test_the_next_one_is_graded_as_if_nothing_had_been(
    name: str, graded: tuple[dict[str, Grade], Path]
) -> None:
    after = graded[0][f"{name}_after"]
    assert after.status == "graded", after.reason
    assert after.score == 10


def test_all_layers_were_active(graded: tuple[dict[str, Grade], Path]) -> None:
    for grade in graded[0].values():
        assert grade.layers == ALL_LAYERS, (grade.submission, grade.layers)


def test_nothing_was_read_that_is_not_its_own(graded: tuple[dict[str, Grade], Path]) -> None:
    printed = graded[0]["reads_everything"].output
    assert "LANG" in printed, "it did not come to its end"
    assert SECRET not in printed
    for place in ("/etc", "/proc", "/home", "profile.toml", "expected.toml", str(graded[1])):
        assert f"FOUND {place}" not in printed
        assert f"/{place}" not in printed


def test_nothing_was_written_outside(graded: tuple[dict[str, Grade], Path]) -> None:
    printed = graded[0]["writes_outside"].output
    assert "WROTE" not in printed
    assert "CHANGED" not in printed
    for place in ("/tmp", "/var/tmp", "/dev/shm", "/", str(graded[1] / "submissions")):
        assert not (Path(place) / "triu_was_here").exists()


@pytest.mark.parametrize(
    ("name", "word"), [("network", "CONNECTED"), ("runs_programs", "RAN "), ("kills_others", "killed")]
)
def test_what_must_not_succeed_does_not(name: str, word: str, graded: tuple[dict[str, Grade], Path]) -> None:
    assert word not in graded[0][name].output


def test_reports_show_what_it_wrote_and_run_nothing(graded: tuple[dict[str, Grade], Path]) -> None:
    folder = graded[1] / "out" / "submissions" / "escapes"
    for name in ("feedback.html", "feedback.md", "results.json"):
        text = (folder / name).read_text("utf-8")
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "<script" not in (folder / "feedback.html").read_text("utf-8")

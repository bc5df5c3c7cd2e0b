"""`triu replay`: the stored cases of a report again, on the same candidate or on a mended one."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from triu.conformance import check
from triu.conformance.cli import main
from triu.reports import to_json

WRONG = """import torch

def causal_mask(T):
    \"\"\"True = blocked.\"\"\"
    return torch.ones(T, T).triu({diagonal}).bool()
"""


def replay(folder: Path, *arguments: str, worker: bool = False) -> Result:
    places = [str(folder / a) if a.endswith((".json", ".py")) else a for a in arguments]
    return CliRunner().invoke(main, ["replay", *places, *([] if worker else ["--in-process"])])


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    (tmp_path / "submission.py").write_text(WRONG.format(diagonal=2))
    report = check(str(tmp_path / "submission.py"), in_process=True, claims="causal-mask.*")
    assert not report.conforms
    (tmp_path / "report.json").write_text(to_json(report), "utf-8")
    return tmp_path


def test_what_was_not_touched_still_fails(stored: Path) -> None:
    run = replay(stored, "report.json")
    assert run.exit_code == 1, run.output
    assert "still failing" in run.output
    assert "fixed" not in run.output
    assert "expected" in run.output


def test_what_was_mended_is_fixed(stored: Path) -> None:
    (stored / "submission.py").write_text(WRONG.format(diagonal=1))
    run = replay(stored, "report.json")
    assert run.exit_code == 0, run.output
    assert "still failing" not in run.output


def test_what_fails_in_another_way_is_told_beside_what_was(stored: Path) -> None:
    (stored / "submission.py").write_text(WRONG.format(diagonal=0))
    run = replay(stored, "report.json", "causal-mask.total")
    assert run.exit_code == 1
    assert "different" in run.output
    assert "before: " in run.output


def test_another_target_can_be_named(stored: Path) -> None:
    (stored / "other.py").write_text(WRONG.format(diagonal=1))
    assert replay(stored, "report.json", "--target", "other.py").exit_code == 0


def test_an_object_that_is_gone_is_not_called_fixed(stored: Path) -> None:
    (stored / "submission.py").write_text(WRONG.format(diagonal=1).replace("causal_mask", "look_ahead_mask"))
    run = replay(stored, "report.json")
    assert run.exit_code == 1
    assert "nothing of the name causal_mask" in run.output


def test_a_worker_that_is_killed_is_not_called_fixed(stored: Path) -> None:
    (stored / "submission.py").write_text(
        "import os\n" + WRONG.format(diagonal=1).replace("return", "os._exit(3)\n    return")
    )
    run = replay(stored, "report.json", worker=True)
    assert run.exit_code == 1
    assert "fixed" not in run.output


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "cannot be read"), ("{", "may be cut short"), ("[]", "no triu report")],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "report.json").write_text(text)
    run = replay(tmp_path, "report.json")
    assert run.exit_code == 2
    assert message in run.output


def test_a_claim_that_did_not_fail_is_refused_with_those_that_did(stored: Path) -> None:
    run = replay(stored, "report.json", "attention.*")
    assert run.exit_code == 2
    assert "causal-mask.total" in run.output

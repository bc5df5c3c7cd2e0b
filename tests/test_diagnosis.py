"""Telling people which mistake they made: the mutants, written by others in styles of their own, are recognised."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from triu.conformance import check
from triu.conformance.api import open_check
from triu.reference.mutants import load_mutants
from triu.reports import to_text
from triu.spec import load_spec

ROOT = Path(__file__).parents[1]
SPEC = load_spec()
MUTANTS = load_mutants()


def _elsewhere() -> Any:
    spec = importlib.util.spec_from_file_location("elsewhere", ROOT / "benchmarks" / "elsewhere.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["elsewhere"] = module
    spec.loader.exec_module(module)
    return module


elsewhere = _elsewhere()
ROWS = elsewhere.rows()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.mutant}-{Path(row.file).stem}")
def test_a_mistake_in_another_style_is_named(row: Any) -> None:
    outcome = elsewhere.judge(row, SPEC)
    assert outcome.broken, "nothing is wrong with it"
    first = (outcome.named or ("",))[0]
    assert first == row.expected or (row.by_chance and first in ("", row.mutant)), (first, outcome.broken)


def test_every_mutant_has_a_candidate_in_another_style() -> None:
    assert {row.mutant for row in ROWS} == set(MUTANTS)


def test_the_right_mistake_is_named_in_95_of_100_and_a_wrong_one_in_one_at_most() -> None:
    right = sum(row.expected == row.mutant for row in ROWS)
    wrong = sum(row.expected not in ("", row.mutant) for row in ROWS)
    assert right >= 0.95 * len(ROWS)
    assert wrong <= 0.01 * len(ROWS)


def likely(path: Path, **options: Any) -> dict[str, str]:
    report = check(path, in_process=True, **options)
    return {
        v.claim: v.failure.likely.mutant if v.failure.likely else ""
        for v in report.verdicts
        if v.failure is not None and v.verdict in ("failed", "errored")
    }


def test_a_mistake_that_is_none_of_the_known_ones_is_not_given_a_name(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    path.write_text(
        "import torch\n"
        "def causal_mask(T):\n"
        '    """True = blocked."""\n'
        "    mask = torch.ones(T, T).triu(1).bool()\n"
        "    mask[T // 2, : T // 3] = True\n"
        "    return mask\n"
    )
    named = likely(path, claims="causal-mask.*")
    assert named
    assert set(named.values()) == {""}


def test_the_report_tells_mistake_and_correction(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    path.write_text(
        "import torch\n"
        "def attention(q, k, v, mask=None):\n"
        '    """mask: True = allowed."""\n'
        "    w = (q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5).softmax(-1)\n"
        "    if mask is not None:\n"
        "        w = w * mask\n"
        "    return w @ v, w\n"
    )
    text = " ".join(to_text(check(path, in_process=True, claims="attention.*")).split())
    mutant = MUTANTS["attention-softmax-then-zero"]
    assert mutant.misconception in text
    assert f"→ {mutant.correction}" in text
    assert "tell it from other known mistakes; attention-softmax-then-zero)" in text


def test_a_candidate_that_hangs_where_the_check_did_not_go_is_not_tried_again_and_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "submission.py"
    path.write_text(
        "import torch\n"
        "def attention(q, k, v, mask=None):\n"
        '    """mask: True = allowed."""\n'
        "    while mask is not None and float(q.abs().max()) > 40:\n"
        "        pass\n"
        "    scores = q @ k.transpose(-2, -1)\n"
        "    if mask is not None:\n"
        "        scores = scores.masked_fill(~mask.bool(), -1e9)\n"
        "    w = scores.softmax(-1)\n"
        "    return w @ v, w\n"
    )
    opened = open_check(path, spec=SPEC, call_seconds=5.0)
    try:
        report = opened.report([c for c in SPEC.claims.values() if c.role == "attention"])
    finally:
        opened.close()
    assert [v.claim for v in report.verdicts if v.verdict == "failed"] == ["attention.scaled"]
    late = [e for e in opened.session.log if e.error is not None and e.error.kind == "time-out"]
    assert len(late) <= 1

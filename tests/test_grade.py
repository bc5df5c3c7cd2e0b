"""Grading one submission: what an assignment names and a submission lacks, and limits where nothing is confined."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from triu.conformance.grading.forked import Forked, Template, TemplateError
from triu.conformance.grading.grade import Manner, grade
from triu.conformance.grading.profile import load_profile
from triu.conformance.grading.submissions import as_submission
from triu.spec import Grade, load_spec

SPEC = load_spec()
PROFILE = """
title = "Looking back"
required = ["causal_mask"]
[roles]
attention = ["look_back"]
[arguments.look_back]
mask = "hide"
[conventions.attention]
polarity = "block"
[limits]
call_seconds = {call}
total_seconds = {total}
memory_mb = 300
[[milestone]]
id = "A"
title = "A"
[[milestone.item]]
id = "mask"
title = "The mask"
claims = ["causal-mask.shape", "causal-mask.pattern"]
points = 4
[[milestone.item]]
id = "attention"
title = "Attention"
claims = ["attention.shape", "attention.masked"]
points = 6
"""
MASK = "import torch\n\n\ndef build_causal_mask(T):\n    return torch.ones(T, T, dtype=torch.bool).triu(1)\n"
LOOK_BACK = """

def look_back(query, key, value, hide=None):
    scores = query @ key.transpose(-2, -1) / key.shape[-1] ** 0.5
    if hide is not None:
        scores = scores.masked_fill(hide, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ value, weights
"""


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    started = Template()
    yield started
    started.close()


def graded(
    tmp_path: Path,
    template: Template,
    text: str,
    isolation: str = "auto",
    *,
    call: int = 60,
    total: int = 300,
) -> Grade:
    (tmp_path / "profile.toml").write_text(PROFILE.format(call=call, total=total))
    (tmp_path / "student.py").write_text(text)
    profile = load_profile(tmp_path / "profile.toml", SPEC)
    manner = Manner(b"secret", 4, isolation)
    return grade(as_submission(tmp_path / "student.py"), profile, SPEC, manner, template)


@pytest.mark.parametrize(
    ("more", "points", "status"),
    [
        (LOOK_BACK, 10, "passed"),
        (LOOK_BACK.replace("hide", "hidden"), 10, "passed"),
        ("", 4, "missing"),
        ("\n\ndef look_back(x):\n    return x\n", 4, "missing"),
    ],
    ids=["as asked", "another name for the mask", "not there", "another signature"],
)
def test_what_the_assignment_names_and_a_submission_lacks_costs_its_items(
    tmp_path: Path, template: Template, more: str, points: int, status: str
) -> None:
    found = graded(tmp_path, template, MASK + more)
    assert (found.status, found.score) == ("graded", points), found.reason
    assert [item.status for item in found.items] == ["passed", status]


def test_memory_is_bounded_where_nothing_is_confined(tmp_path: Path, template: Template) -> None:
    text = (
        "import time\n\n\ndef build_causal_mask(T):\n"
        "    held = bytearray(b'x') * (1200 << 20)\n    time.sleep(600)\n    return held\n"
    )
    found = graded(tmp_path, template, text, "process")
    assert found.layers == ("process only",)
    failures = [v.failure.what for item in found.items for v in item.verdicts if v.failure is not None]
    assert any("more than 300 MB of memory" in what for what in failures), failures


@pytest.mark.parametrize("isolation", ["auto", "process"])
def test_the_whole_submission_has_a_limit_of_time(tmp_path: Path, template: Template, isolation: str) -> None:
    text = "import time\n\ntime.sleep(600)\n"
    found = graded(tmp_path, template, text, isolation, total=3)
    assert (found.status, found.word) == ("ungradable", "time-out")
    assert "everything together took longer than 3 s" in found.reason
    assert found.seconds < 200


def test_a_worker_that_cannot_be_started_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Template()
    monkeypatch.setattr("sys.executable", "/bin/false")
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for _ in range(5):
        worker = Forked(broken, tmp_path)
        with pytest.raises(TemplateError, match="could not be started"):
            worker.start()
    assert not list(tmp_path.iterdir())
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 3

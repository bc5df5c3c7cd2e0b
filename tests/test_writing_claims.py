"""A course's own claims: the very file that docs/writing-claims.md leads through, and that document itself."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from triu.conformance import check
from triu.spec import load_spec

ROOT = Path(__file__).parents[1]
CLAIMS = Path(__file__).parent / "data" / "course_claims.toml"
DOCUMENT = ROOT / "docs" / "writing-claims.md"
WEEKS = {
    "week-3.handout-mask",
    "week-3.project-lengths",
    "week-3.sixths",
    "week-3.project-width",
    "week-4.project-positions",
}
WINDOW = {"window-mask.shape", "window-mask.pattern"}

# Right at every size that the built-in claims draw, wrong at the sizes of the course's project.
SUBMISSION = '''\
import torch

TABLE = torch.ones(128, 128).triu(diagonal=1).bool()


def build_causal_mask(T):
    return TABLE[:T, :T]


def attention(query, key, value, mask=None):
    """mask: True where attention is allowed."""
    scale = min(query.size(-1) ** 0.5, 4.0)
    scores = query @ key.transpose(-2, -1) / scale
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return weights @ value, weights
'''
COARSE_POSITIONS = """\
import torch
from triu.reference.baseline import positional_encoding as exact


def positional_encoding(T, d):
    return exact(T, d).half()
"""
WINDOW_MASK = """\
import numpy as np


def sliding_window_mask(seq_len, window):
    i, j = np.arange(seq_len)[:, None], np.arange(seq_len)[None, :]
    return (j <= i) & (i - j {} window)
"""


@pytest.fixture(scope="module")
def spec():
    return load_spec([CLAIMS])


@pytest.fixture
def candidate(tmp_path):
    """Writes a submission and returns its path."""

    def write(text):
        path = tmp_path / "submission.py"
        path.write_text(text, "utf-8")
        return path

    return write


def outcomes(report, claims):
    """Claim → the set of its verdicts on all objects that it concerns."""
    return {claim: {v.verdict for v in report.verdicts if v.claim == claim} for claim in claims}


def failed(report):
    return {v.claim for v in report.verdicts if v.verdict == "failed"}


# the file


def test_the_file_is_loaded_beside_the_built_in_claims(spec):
    own = {claim.id for claim in spec.claims.values() if claim.file == str(CLAIMS)}
    assert own == WEEKS | WINDOW
    assert "attention.masked" in spec.claims


def test_the_baseline_meets_every_claim_on_a_role_that_it_provides(spec):
    report = check("baseline", spec=spec, claims="week-*")
    assert report.conforms
    assert all("passed" in verdicts for verdicts in outcomes(report, WEEKS).values())


def test_the_second_opinion_meets_them_too(spec):
    report = check("numpy", spec=spec, claims="week-*")
    assert outcomes(report, WEEKS) == {claim: {"passed"} for claim in WEEKS}


def test_a_role_that_nobody_provides_is_unsupported_and_not_passed(spec):
    report = check("baseline", spec=spec, claims="window-mask.*")
    assert outcomes(report, WINDOW) == {claim: {"unsupported"} for claim in WINDOW}
    assert not report.conforms


def test_a_submission_that_is_wrong_at_the_course_s_sizes_breaks_the_two_claims_about_them(spec, candidate):
    report = check(candidate(SUBMISSION), spec=spec, claims="week-*")
    assert not report.conforms
    assert failed(report) == {"week-3.project-lengths", "week-3.project-width"}


def test_a_failure_tells_the_course_s_own_words_and_the_smallest_case(spec, candidate):
    report = check(candidate(SUBMISSION), spec=spec, claims="week-3.project-lengths")
    failure = next(v.failure for v in report.verdicts if v.failure)
    assert failure.hint == spec.claims["week-3.project-lengths"].hint
    assert failure.case["T"] == 200
    assert failure.told == ("T",)
    assert failure.what == "the shape is [128, 128], expected [200, 200]"


def test_a_broken_should_of_the_course_is_told_and_does_not_count(spec, candidate):
    report = check(candidate(COARSE_POSITIONS), spec=spec, claims="week-4.*")
    assert failed(report) == {"week-4.project-positions"}
    assert not any(v.breaks_conformance for v in report.verdicts)


@pytest.mark.parametrize(("compared", "broken"), [("<", set()), ("<=", {"window-mask.pattern"})])
def test_a_role_of_the_course_is_found_by_name_and_judged(spec, candidate, compared, broken):
    report = check(candidate(WINDOW_MASK.format(compared)), spec=spec)
    assert report.provides == ("window_mask",)
    assert failed(report) == broken


# through pytest


def pytest_on_the_file(target, cwd):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        str(CLAIMS),
        "--candidate",
        str(target),
    ]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def test_pytest_passes_the_file_on_the_baseline(tmp_path):
    result = pytest_on_the_file("baseline", tmp_path)
    assert result.returncode == 0, result.stdout
    assert f"{len(WEEKS)} passed, {len(WINDOW)} skipped" in result.stdout


def test_pytest_fails_the_file_on_a_wrong_submission(candidate, tmp_path):
    result = pytest_on_the_file(candidate(SUBMISSION), tmp_path)
    assert result.returncode == 1, result.stdout
    assert set(re.findall(r"FAILED \S+::(\S+)", result.stdout)) == {
        "week-3.project-lengths",
        "week-3.project-width",
    }


# the document


def shown(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def test_every_block_of_toml_in_the_document_stands_in_the_file():
    blocks = shown("toml")
    assert blocks
    text = CLAIMS.read_text("utf-8")
    assert [block for block in blocks if block not in text] == []


def test_every_claim_of_the_file_is_shown_in_the_document():
    blocks = "".join(shown("toml"))
    assert [claim for claim in sorted(WEEKS | WINDOW) if f'id = "{claim}"' not in blocks] == []


def test_the_submission_in_the_document_is_the_one_that_is_judged_here():
    assert SUBMISSION in shown("python")

"""The pytest plugin: claims are items, and pytest's own options work on them."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BROKEN = ROOT / "examples" / "inverted_mask.py"


def run(*arguments, cwd):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


@pytest.fixture(scope="module")
def anywhere(tmp_path_factory):
    return tmp_path_factory.mktemp("anywhere")


def test_claims_are_collected_from_the_installed_spec_anywhere(anywhere):
    result = run("--pyargs", "triu.spec", "--candidate", BROKEN, "-q", "--collect-only", cwd=anywhere)
    assert "causal_mask.toml::causal-mask.pattern" in result.stdout


def test_a_broken_candidate_fails_with_a_text_for_people_and_without_a_traceback(anywhere):
    result = run("--pyargs", "triu.spec", "--candidate", BROKEN, "-k", "diagonal", cwd=anywhere)
    assert result.returncode == 1
    assert "position 0 is hidden from itself" in result.stdout
    assert "likely mistake: build_causal_mask behaves" in result.stdout
    assert "Traceback" not in result.stdout
    assert "1 failed" in result.stdout


def test_what_a_claim_rests_on_is_evaluated_though_it_was_not_selected(anywhere):
    result = run(
        "--pyargs", "triu.spec", "--candidate", BROKEN, "-k", "causal-mask.pattern", "-rs", cwd=anywhere
    )
    assert "blocked: rests on causal-mask.diagonal" in result.stdout


def test_junit_and_xdist_work(anywhere):
    result = run(
        "--pyargs",
        "triu.spec",
        "--candidate",
        BROKEN,
        "-k",
        "causal_mask",
        "-n",
        2,
        "--junitxml",
        "out.xml",
        cwd=anywhere,
    )
    cases = ET.parse(anywhere / "out.xml").getroot().iter("testcase")
    failed = {case.get("name") for case in cases if case.find("failure") is not None}
    assert failed == {"causal-mask.diagonal", "causal-mask.five"}, result.stdout


def test_in_the_checkout_a_candidate_means_claims_alone():
    result = run("--candidate", BROKEN, "--collect-only", "-q", cwd=ROOT)
    collected = [line for line in result.stdout.split("\n") if "::" in line]
    assert collected
    assert all(line.startswith("spec/") for line in collected)


def test_advice_warns_and_does_not_fail(anywhere):
    example = ROOT / "examples" / "lesson_submission.py"
    result = run("--pyargs", "triu.spec", "--candidate", example, "-k", "finite-gradient", cwd=anywhere)
    assert result.returncode == 0
    assert "AdviceWarning" in result.stdout


def test_an_unusable_candidate_is_said_in_a_line(anywhere):
    result = run("--pyargs", "triu.spec", "--candidate", "nothing.py", "-k", "diagonal", cwd=anywhere)
    assert result.returncode == 4
    assert "no such file or folder" in result.stderr
    assert "Traceback" not in result.stderr

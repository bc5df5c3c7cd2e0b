"""What the engine promises: verdicts, evidence, faults of the suite itself, reproducibility."""

from pathlib import Path

import pytest
from triu.conformance import check
from triu.conformance.api import Judges, one_thread, open_check
from triu.conformance.engine.run import Engine
from triu.spec import load_spec

ROOT = Path(__file__).parents[1]
NUMPY_EXAMPLE = ROOT / "examples" / "numpy_unbatched.py"
WRONG_CLAIM = """
[[claim]]
id = "course.strictly-before"
level = "MUST"
title = "A position sees only what comes before it"
statement = "This is wrong: a position sees itself too."
source = ["nowhere"]
role = "causal_mask"
domain = { T = "2..6" }
property = "elementwise"
with = { result = "allowed", indices = ["i", "j"], formula = "j < i" }
hint = "Do not believe this claim."
"""


def write(folder, text, name="candidate.py"):
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def verdicts(report):
    return {(v.claim, v.object): v.verdict for v in report.verdicts}


def test_the_second_opinion_passes_every_claim_that_it_can_be_judged_by():
    report = check("numpy", in_process=True)
    assert set(verdicts(report).values()) == {"passed", "unsupported"}
    assert report.conforms


def test_the_baseline_passes_every_claim_on_all_that_it_must_have_seen():
    """A claim that no judge can pass, or passes by a case left out, proves nothing of a candidate that passes it."""
    report = check("baseline", in_process=True)
    assert {v.verdict for v in report.verdicts} == {"passed", "unsupported"}
    passed = [v for v in report.verdicts if v.verdict == "passed"]
    # One claim is on a convention that has to be declared; another test declares it.
    assert {v.claim for v in report.verdicts} - {v.claim for v in passed} == {
        "multihead.attn-mask-float-blocks"
    }
    # A function has no longest length to set, the class beside it has.
    waived = {(v.claim, v.evidence.waived) for v in passed if v.evidence.waived}
    assert waived == {("positional-encoding.formula", ("max_len == 200 and T >= 8",))}


def test_pytorch_itself_conforms():
    report = check("torch", in_process=True)
    must = {v.verdict for v in report.verdicts if v.level == "MUST"}
    assert must == {"passed", "unsupported"}


def test_a_claim_whose_evidence_was_not_seen_is_inconclusive_and_breaks_conformance():
    report = check("baseline", examples=1, in_process=True, claims="attention.*")
    undecided = [v for v in report.verdicts if v.verdict == "inconclusive"]
    assert undecided
    assert all(v.evidence.missing and "not seen" in v.reason for v in undecided)
    assert not report.conforms


def test_a_wrong_claim_is_the_fault_of_the_suite_and_never_of_the_candidate(tmp_path):
    spec = load_spec([write(tmp_path, WRONG_CLAIM, "wrong.toml")])
    candidate = write(
        tmp_path, "import torch\ndef causal_mask(T):\n    return torch.ones(T, T).triu(1).bool()\n"
    )
    report = check(candidate, spec=spec, claims="course.*", in_process=True)
    (verdict,) = report.verdicts
    assert verdict.verdict == "suite_fault"
    assert "baseline" in verdict.failure.what
    assert "numpy" in verdict.failure.what
    assert report.suite_fault
    assert not report.conforms


def test_an_unbatched_candidate_owes_no_batch():
    report = check(NUMPY_EXAMPLE, in_process=True, claims="attention.*")
    found = {v.claim: v for v in report.verdicts}
    assert found["attention.batch"].verdict == "unsupported"
    assert "B >= 2 and layout != '2d'" in found["attention.shape"].evidence.waived
    assert found["attention.shape"].verdict == "passed"


def test_what_rests_on_a_broken_claim_is_blocked_and_names_the_first_cause():
    report = check(ROOT / "examples" / "softmax_then_zero.py", in_process=True)
    blocked = {v.claim: v.reason for v in report.verdicts if v.verdict == "blocked"}
    assert blocked["attention.trace-4"] == "rests on attention.row-sums"
    assert [v.claim for v in report.verdicts if v.verdict == "failed"] == ["attention.row-sums"]


def test_a_candidate_that_answers_at_random_is_refuted(tmp_path):
    candidate = write(
        tmp_path,
        "import random\nimport torch\n"
        "def causal_mask(T):\n"
        "    return torch.ones(T, T).triu(random.choice([0, 1])).bool()\n",
    )
    report = check(candidate, in_process=True)
    failed = [v for v in report.verdicts if v.verdict == "failed"]
    assert failed
    assert not report.conforms


@pytest.mark.parametrize("name", ["numpy_unbatched.py", "softmax_then_zero.py"])
def test_the_same_seed_gives_the_same_verdicts_in_process_and_through_the_worker(name):
    path = ROOT / "examples" / name
    assert verdicts(check(path, seed=3)) == verdicts(check(path, seed=3, in_process=True))


def test_twenty_seeds_give_the_numpy_example_the_same_verdicts():
    opened = open_check(NUMPY_EXAMPLE, in_process=True)
    judges = Judges(opened.spec)
    assert len({_outcome(opened, judges, seed, 10) for seed in range(20)}) == 1


def test_no_seed_of_eight_accuses_the_baseline():
    opened = open_check("baseline", in_process=True)
    judges = Judges(opened.spec)
    outcomes = {_outcome(opened, judges, seed, 6) for seed in range(8)}
    assert {verdict for outcome in outcomes for _, _, verdict in outcome} == {"passed", "unsupported"}
    # With six examples a rare situation may not come up, and a claim on it is then said to be unsupported.
    passed = [
        {(claim, name) for claim, name, verdict in outcome if verdict == "passed"} for outcome in outcomes
    ]
    assert len(set.union(*passed) - set.intersection(*passed)) <= 4


def _outcome(opened, judges, seed, examples):
    for subject in opened.candidate.subjects:
        subject.remembered.clear()
    engine = Engine(opened.spec, opened.candidate, seed=seed, examples=examples, judges=judges)
    with one_thread():
        found = [verdict for claim in opened.spec.claims.values() for verdict in engine.verdicts(claim)]
    return tuple((v.claim, v.object, v.verdict) for v in found)


def test_conventions_are_tried_and_the_message_says_how_to_declare_the_one_that_fits(tmp_path):
    candidate = write(
        tmp_path, "import torch\ndef causal_mask(T):\n    return torch.ones(T, T).tril().bool()\n"
    )
    report = check(candidate, in_process=True, claims="causal-mask.diagonal")
    assert 'polarity = "allow"' in report.verdicts[0].failure.meant
    declared = check(candidate, in_process=True, conventions={"causal_mask": {"polarity": "allow"}})
    assert declared.conforms
    assert dict(declared.binding[0].conventions)["polarity"] == ("allow", "declared")


def test_no_declaration_is_offered_where_none_would_make_it_right(tmp_path):
    candidate = write(
        tmp_path, "import torch\ndef causal_mask(T):\n    return torch.ones(T, T).triu(0).bool()\n"
    )
    report = check(candidate, in_process=True, claims="causal-mask.diagonal")
    assert report.verdicts[0].failure.meant == ""


@pytest.mark.parametrize("judge", ["baseline", "numpy"])
def test_claims_on_declared_conventions_hold_for_the_judges_too(judge):
    declared = {"multihead_attention": {"attn_mask": "additive"}}
    report = check(judge, in_process=True, conventions=declared, claims="multihead.attn-mask-float-blocks")
    found = [v.verdict for v in report.verdicts]
    assert "passed" in found
    assert set(found) <= {"passed", "unsupported"}

"""`triu diff`: two reports compared, what of it is a regression, and what is known."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from triu.conformance import check
from triu.conformance.cli import main
from triu.reports import to_json
from triu.reports.diff import KINDS, compare
from triu.reports.diff_shown import diff_json, diff_markdown, diff_text
from triu.reports.fingerprint import fingerprint
from triu.reports.known import Known, KnownError, known_of, known_text, read_known
from triu.spec import Evidence, Failure, Likely, Report, Verdict

HOSTILE = '\x1b[31m<img src=x>"\\ @someone\u202e\n# `heading`'


def verdict(outcome="passed", what="", claim="a.one", on="f", level="MUST", mutant=""):
    likely = Likely(mutant, "a misconception", "a correction", 3, 3) if mutant else None
    failure = Failure(what, likely=likely) if outcome in ("failed", "errored", "suite_fault") else None
    reason = "" if failure else what
    return Verdict(claim, "a title", "role", level, on, outcome, Evidence(1), reason=reason, failure=failure)


def report(*verdicts, seed=0, torch="2.5.1", target="lib.py"):
    environment = {"triu": "0.1.0", "torch": torch, "examples": 24}
    return Report({"target": target, "kind": "file"}, seed, (), verdicts, environment)


def kinds(difference):
    return {kind: len(difference.of(kind)) for kind in KINDS if difference.of(kind)}


def told(old, new, known=()):
    difference = compare(report(old), report(new), known)
    return kinds(difference), bool(difference.regressions)


def entry(failing, reason="issue 7"):
    return Known(failing.claim, failing.object, fingerprint(failing), reason)


ABSENT = verdict("unsupported", "it provides no role", on="—")
FAILED, OTHER = verdict("failed", "the sum is 3, expected 1"), verdict("failed", "the shape is [2]")
BLOCKED, UNSUPPORTED = verdict("blocked", "rests on b.two"), verdict("unsupported", "it takes no mask")


@pytest.mark.parametrize(
    ("old", "new", "kind", "regression"),
    [
        (verdict(), FAILED, "newly_failing", True),
        (verdict(), verdict("errored", "it raised"), "newly_failing", True),
        (verdict(), verdict("inconclusive", "too few cases"), "newly_failing", True),
        (verdict(), verdict("suite_fault", "the claim is at fault"), "newly_failing", True),
        (verdict(), BLOCKED, "newly_failing", True),
        (UNSUPPORTED, FAILED, "newly_failing", True),
        (ABSENT, FAILED, "newly_failing", True),
        (BLOCKED, FAILED, "newly_failing", False),
        (FAILED, verdict(), "fixed", False),
        (BLOCKED, verdict(), "fixed", False),
        (verdict(), UNSUPPORTED, "newly_unsupported", True),
        (verdict(), ABSENT, "newly_unsupported", True),
        (FAILED, OTHER, "failing_otherwise", True),
        (FAILED, verdict("errored", "the sum is 3, expected 1"), "failing_otherwise", True),
        (FAILED, verdict("failed", "the sum is 0.25, expected 1"), "still_failing", False),
        (FAILED, BLOCKED, "still_failing", False),
        (FAILED, ABSENT, "no_longer_judged", False),
        (UNSUPPORTED, verdict(), "newly_passing", False),
    ],
)
def test_each_pair_of_verdicts_is_of_one_kind(old, new, kind, regression):
    assert told(old, new) == ({kind: 1}, regression)


@pytest.mark.parametrize("level", ["SHOULD", "MAY"])
@pytest.mark.parametrize("new", [FAILED, ABSENT, OTHER])
def test_only_a_must_is_a_regression(level, new):
    old = FAILED if new is OTHER else verdict()
    difference = compare(report(replace(old, level=level)), report(replace(new, level=level)))
    assert len(difference.changes) == 1
    assert not difference.regressions


def test_what_stays_as_it_is_is_told_nowhere():
    for same in (verdict(), UNSUPPORTED, ABSENT):
        assert told(same, same) == ({}, False)


def test_a_claim_that_nobody_asked_before_is_new_and_no_regression():
    difference = compare(report(verdict()), report(verdict(), replace(FAILED, claim="z.new")))
    assert kinds(difference) == {"new_claims": 1}
    assert not difference.regressions
    assert "the sum is 3" in diff_text(difference)


def test_a_claim_that_is_not_asked_any_more_is_a_loss():
    difference = compare(report(verdict(), verdict(claim="b.two")), report(verdict(claim="b.two")))
    assert kinds(difference) == {"newly_unsupported": 1}
    assert "the new report has no such claim" in diff_text(difference)


def test_reports_without_a_common_claim_are_not_compared():
    with pytest.raises(ValueError, match="no claim in common"):
        compare(report(verdict()), report(verdict(claim="b.two")))


def test_blocked_claims_are_counted_in_the_line_of_their_cause():
    on = "f + g"
    old = report(
        verdict(claim="b.two"), verdict(), verdict(claim="c.three", on=on), replace(BLOCKED, claim="d")
    )
    new = report(
        verdict("failed", "no", claim="b.two"), BLOCKED, replace(BLOCKED, claim="c.three", object=on),
        replace(BLOCKED, claim="d"),
    )  # fmt: skip
    difference = compare(old, new)
    assert kinds(difference) == {"newly_failing": 1}
    text = diff_text(difference, width=200)
    assert "MUST b.two on f: no (3 claims that rest on it not tried, 2 of them passed before)" in text
    assert "c.three" not in text
    assert "was: no (and 2 claims that rested on it)" in diff_text(compare(new, old), width=200)


def test_a_must_that_waits_for_a_should_counts():
    old = report(verdict(claim="b.two", level="SHOULD"), verdict())
    new = report(verdict("failed", "no", claim="b.two", level="SHOULD"), BLOCKED)
    assert len(compare(old, new).regressions) == 1


def test_a_lost_claim_is_not_hidden_under_a_cause_that_failed_before():
    cause = verdict("failed", "no", claim="b.two")
    difference = compare(report(cause, verdict()), report(cause, BLOCKED))
    assert kinds(difference) == {"newly_failing": 1, "still_failing": 1}
    assert [change.now.claim for change in difference.regressions] == ["a.one"]


def test_sections_come_in_their_order_and_a_line_has_what_is_needed():
    claims = dict(zip("abcde", (verdict(), FAILED, verdict(), FAILED, FAILED), strict=True))
    after = dict(zip("abcdef", (FAILED, verdict(), UNSUPPORTED, OTHER, FAILED, FAILED), strict=True))
    old, new = (report(*(replace(v, claim=c) for c, v in part.items())) for part in (claims, after))
    text = diff_text(compare(old, new))
    titles = ["Newly failing:", "Fixed:", "Passed before, not judged now:"]
    titles += ["Failing otherwise than before:", "Still failing:", "New claims:"]
    places = [text.index(title) for title in titles]
    assert places == sorted(places)
    assert "  ✗ MUST a on f: the sum is 3, expected 1\n" in text
    assert "before: the sum is 3, expected 1" in text
    assert "now: the shape is [2]" in text
    assert text.startswith("lib.py: 3 regressions (1 newly failing, 1 passed before")


def test_claims_that_fail_alike_are_told_in_one_line():
    many = [verdict("errored", "f: it takes no keyword", claim=f"a.{i}") for i in range(9)]
    text = diff_text(compare(report(*(verdict(claim=v.claim) for v in many)), report(*many)))
    assert "! MUST a.0, a.1, a.2 and 6 more on f: it takes no keyword\n" in text


def test_the_head_says_what_differs():
    text = diff_text(compare(report(verdict()), report(verdict(), seed=7, torch="2.6.0")), width=200)
    assert "seed 0 → 7, torch 2.5.1 → 2.6.0; the same target, triu and examples" in text


# Fingerprints.


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("row 3 sums to 0.86, expected 1", "row 11 sums to -1.5e-07, expected 1"),
        ("call 2 has 1 token", "call 3 has 4 tokens"),
        ("the entries are [[1, 0], [0, 1]]", "the entries are [[1]]"),
        ("tokens 1, 2 and 5 were kept", "tokens 3 and 4 were kept"),
        ("the score is nan", "the score is 3.5"),
        ("KeyError: 'wq' is not there", 'KeyError: "wk" is not there'),
        ("ValueError: no (lib.py, line 3: raise ValueError(x))", "ValueError: no (lib.py, line 9: raise Bad)"),
        ("no (src/lib.py, line 3: x = a / b)", "no (lib.py, line 9: y)"),
        ("no file /tmp/ab12/x.pt", "no file /home/me/x.pt"),
        ("<object at 0x7f3a>", "<object at 0x61bc>"),
        ("not deterministic: the output at [0]: 1", "not deterministic: the same call gave another"),
    ],
)  # fmt: skip
def test_a_failure_is_known_again_whatever_its_numbers(one, other):
    assert fingerprint(verdict("failed", one)) == fingerprint(verdict("failed", other))


@pytest.mark.parametrize(
    "other",
    [
        verdict("failed", "the shape is [2]"),
        verdict("errored", "it's the sum, and both rows' 3"),
        verdict("failed", "it's the sum, and both rows' 3", claim="a.two"),
        verdict("failed", "it's the sum, and both rows' 3", on="g"),
        verdict("failed", "it's the product, and both rows' 3"),
        verdict("failed", "it's the sum, and both rows' 3", mutant="mask-one-late"),
    ],
)
def test_another_failure_has_another_fingerprint(other):
    one = fingerprint(verdict("failed", "it's the sum, and both rows' 3"))
    assert len(one) == 12
    assert fingerprint(other) != one


# Known failures.


def test_a_known_failure_is_no_regression():
    difference = compare(report(verdict()), report(FAILED), [entry(FAILED)])
    assert not difference.regressions
    assert [change.now.claim for change in difference.known] == ["a.one"]
    assert "a.one on f: issue 7" in diff_text(difference)


def test_what_waits_for_a_known_failure_is_no_regression():
    cause = verdict("failed", "no", claim="b.two")
    old, new = report(verdict(claim="b.two"), verdict()), report(cause, BLOCKED)
    assert compare(old, new).regressions
    assert not compare(old, new, [entry(cause)]).regressions


@pytest.mark.parametrize("before", [verdict(), FAILED, OTHER])
def test_another_failure_than_the_known_one_is_a_regression(before):
    difference = compare(report(before), report(OTHER), [entry(FAILED)])
    assert len(difference.regressions) == 1
    text = diff_text(difference, width=200)
    assert fingerprint(FAILED) in text
    assert fingerprint(OTHER) in text


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (verdict(), "passes now"),
        (UNSUPPORTED, "is not judged now: it takes no mask"),
        (ABSENT, "is not judged now: it provides no role"),
    ],
)
def test_an_entry_that_fits_nothing_is_told(now, why):
    difference = compare(report(FAILED), report(now), [entry(FAILED)])
    assert [told for _, told in difference.idle] == [why]
    assert not difference.regressions
    assert f"– a.one on f: {why}" in diff_text(difference)


def test_an_entry_of_a_claim_that_nobody_has_is_told():
    difference = compare(report(verdict()), report(verdict()), [entry(replace(FAILED, claim="gone"))])
    assert len(difference.idle) == 1


@pytest.mark.parametrize("now", [FAILED, OTHER, BLOCKED])
def test_an_entry_of_what_fails_or_waits_is_not_to_be_taken_off(now):
    assert not compare(report(FAILED), report(now), [entry(FAILED)]).idle


def test_a_loss_can_be_listed():
    assert told(verdict(), UNSUPPORTED, [entry(UNSUPPORTED)]) == ({}, False)


def test_what_is_written_is_read_again_and_fits():
    broken = replace(verdict("failed", HOSTILE), object=HOSTILE)
    new = report(broken, replace(FAILED, claim="b", level="SHOULD"), replace(FAILED, claim="c", level="MAY"))
    entries = read_known(known_text(known_of(new), new))
    assert [e.claim for e in entries] == ["a.one", "b"]
    assert not compare(report(replace(verdict(), object=HOSTILE)), new, entries).regressions


def test_reasons_are_kept_when_the_list_is_written_again():
    new = report(OTHER, replace(FAILED, claim="b"), replace(BLOCKED, claim="c"), verdict(claim="d"))
    reasons = {c: f'why "{c}"\nand\x7f \\ é' for c in ("b", "c", "d")}
    earlier = [entry(replace(FAILED, claim=c), reason) for c, reason in reasons.items()]
    earlier.append(entry(FAILED, "of another failure of the same claim"))
    written = read_known(known_text(known_of(new, earlier), new))
    assert {e.claim: e.reason for e in written} == {
        "a.one": "of another failure of the same claim",
        "b": reasons["b"],
        "c": reasons["c"],
    }
    assert written[0].fingerprint == fingerprint(OTHER)


GOOD_ENTRY = '[[known]]\nclaim = "a"\nobject = "f"\nfingerprint = "0123456789ab"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[known]", "is no TOML.*line 1"),
        ("[known]\nclaim = 'a'", r"known: expected entries that begin with \[\[known\]\]"),
        ("known = [3]", "entry 1: found 3, expected a table"),
        ("[[knwon]]", r"found knwon; expected \[\[known\]\] entries alone"),
        (GOOD_ENTRY + "[[known]]\nclaim = 'b'", r"entry 2 \(b\): object: found nothing, expected text"),
        (GOOD_ENTRY + "reason = 3", r"entry 1 \(a\): reason: found 3, expected text"),
        (
            GOOD_ENTRY + "why = 'x'",
            r"entry 1 \(a\): found the field why, expected claim, object, fingerprint",
        ),
        (GOOD_ENTRY.replace("ab", "xy"), r"fingerprint: found '0123456789xy', expected 12 hex digits"),
    ],
)
def test_an_unusable_list_says_which_entry_and_what_was_expected(text, message):
    with pytest.raises(KnownError, match=message):
        read_known(text)


def test_a_list_without_entries_is_a_list():
    assert read_known(known_text((), report())) == ()
    assert read_known(GOOD_ENTRY) == (Known("a", "f", "0123456789ab"),)


# What is shown.


def test_what_a_candidate_wrote_is_neither_an_escape_sequence_nor_markup_and_calls_nobody():
    broken = replace(verdict("failed", HOSTILE), object=HOSTILE, claim="`@someone`")
    old = replace(verdict(), object=HOSTILE, claim="`@someone`")
    for known in ([], [Known("gone", HOSTILE, "0123456789ab", HOSTILE)]):
        difference = compare(report(old), report(broken, target=HOSTILE), known)
        text, page = diff_text(difference), diff_markdown(difference)
        for shown in (text, page):
            assert "\x1b" not in shown
            assert "\u202e" not in shown
            assert not any(line.startswith("# ") for line in shown.split("\n"))
        assert "<img" not in page.replace("\\<img", "")
        assert "@someone" not in page.replace("`'@someone'`", "")
        assert json.loads(diff_json(difference))["newly_failing"][0]["object"] == HOSTILE


def test_a_long_sentence_is_cut():
    shown = diff_text(compare(report(verdict()), report(verdict("failed", "very " * 300))))
    assert "…" in shown
    assert len(shown) < 600


def test_a_comment_stays_short():
    many = [verdict("failed", f"{'x' * 500} {i}", claim=f"a.{i}") for i in range(2000)]
    page = diff_markdown(compare(report(*(verdict(claim=v.claim) for v in many)), report(*many)))
    assert "- and 1950 more" in page
    assert len(page) < 60_000


def test_the_json_is_a_small_stable_document():
    document = json.loads(diff_json(compare(report(verdict()), report(FAILED, seed=3))))
    assert document["format"] == 1
    assert document["regression"] is True
    assert {*KINDS, "known", "idle", "old", "new"} <= document.keys()
    (change,) = document["newly_failing"]
    assert change["before"]["verdict"] == "passed"
    assert change["now"] == {
        "verdict": "failed",
        "what": "the sum is 3, expected 1",
        "fingerprint": fingerprint(FAILED),
    }
    assert document["new"]["seed"] == 3


# The command, on reports of real checks.

MASK = """import torch

def causal_mask(T):
    \"\"\"True = blocked.\"\"\"
    return torch.ones(T, T).triu({diagonal}).bool()
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    for name, diagonal, seed in (("good", 1, 0), ("late", 2, 0), ("again", 2, 5), ("early", 0, 0)):
        (folder / "lib.py").write_text(MASK.format(diagonal=diagonal), "utf-8")
        found = check(str(folder / "lib.py"), in_process=True, claims="causal-mask.*", seed=seed)
        (folder / f"{name}.json").write_text(to_json(found), "utf-8")
    return folder


def diff(folder: Path, *arguments: object) -> Result:
    places = [
        str(folder / str(a)) if str(a).endswith((".json", ".toml", ".md")) else str(a) for a in arguments
    ]
    return CliRunner().invoke(main, ["diff", *places])


def test_a_bug_that_was_put_in_is_a_regression(reports):
    run = diff(reports, "good.json", "late.json")
    assert run.exit_code == 1, run.output
    assert "Newly failing:" in run.output
    assert "mask-one-late" in run.output


def test_a_bug_that_was_taken_out_is_fixed(reports):
    run = diff(reports, "late.json", "good.json")
    assert run.exit_code == 0, run.output
    assert "Fixed:" in run.output


def test_the_same_bug_with_another_seed_is_no_regression(reports):
    run = diff(reports, "late.json", "again.json")
    assert run.exit_code == 0, run.output
    assert "Still failing:" in run.output
    assert "seed 0 → 5" in run.output


def test_a_list_is_written_used_with_another_seed_and_found_to_be_out_of_date(reports, tmp_path):
    known = tmp_path / "known.toml"
    assert diff(reports, "good.json", "late.json", "--write-known", known).exit_code == 1
    text = known.read_text("utf-8").replace('reason = ""', 'reason = "issue 7"')
    known.write_text(text, "utf-8")
    run = diff(reports, "good.json", "again.json", "--known", known)
    assert run.exit_code == 0, run.output
    assert "issue 7" in run.output
    run = diff(reports, "good.json", "good.json", "--known", known)
    assert run.exit_code == 0, run.output
    assert "passes now" in run.output
    diff(reports, "good.json", "late.json", "--write-known", known)
    assert known.read_text("utf-8") == text


def test_another_bug_than_the_known_one_is_a_regression(reports, tmp_path):
    known = tmp_path / "known.toml"
    diff(reports, "good.json", "late.json", "--write-known", known)
    run = diff(reports, "late.json", "early.json", "--known", known)
    assert run.exit_code == 1, run.output
    assert "Failing otherwise than before:" in run.output


def test_quiet_prints_two_lines(reports):
    run = diff(reports, "good.json", "late.json", "--quiet")
    assert len(run.output.splitlines()) == 2


def test_files_are_written(reports, tmp_path):
    run = diff(
        reports, "good.json", "late.json", "--json", tmp_path / "d.json", "--markdown", tmp_path / "d.md"
    )
    assert run.exit_code == 1, run.output
    assert json.loads((tmp_path / "d.json").read_text("utf-8"))["regression"] is True
    assert (tmp_path / "d.md").read_text("utf-8").startswith("### ✗ ")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("gone.json", None, "cannot be read: No such file"),
        ("cut.json", '{"format": 3, "verdicts": [', "this is no whole triu report, it may be cut short"),
        ("other.json", '{"format": 1, "verdicts": []}', "this report has the format 1"),
        ("part.json", '{"format": 3, "verdicts": []}', "this triu report lacks a part"),
        ("bytes.json", b"\xff\xfe\x00", "is no text in UTF-8"),
    ],
)
def test_an_unusable_report_is_named(reports, tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    run = diff(reports, "good.json", tmp_path / name)
    assert run.exit_code == 2
    assert f"{name}: {message}" in run.output


def test_reports_of_other_claims_and_bad_lists_and_bad_folders_are_unusable(reports, tmp_path):
    found = check("baseline", in_process=True, claims="prefix-lm-mask.*")
    (tmp_path / "prefix.json").write_text(to_json(found), "utf-8")
    run = diff(reports, "good.json", tmp_path / "prefix.json")
    assert (run.exit_code, "no claim in common" in run.output) == (2, True)
    (tmp_path / "bad.toml").write_text("[[known]]\nclaim = 3\n", "utf-8")
    for option in ("--known", "--write-known"):
        run = diff(reports, "good.json", "good.json", option, tmp_path / "bad.toml")
        assert (run.exit_code, "bad.toml: entry 1" in run.output) == (2, True)
    assert (tmp_path / "bad.toml").read_text("utf-8") == "[[known]]\nclaim = 3\n"
    run = diff(reports, "good.json", "good.json", "--json", tmp_path / "no" / "d.json")
    assert (run.exit_code, "cannot be written" in run.output) == (2, True)


def test_the_command_needs_neither_torch_nor_numpy(reports):
    code = (
        "import sys; from triu.conformance.cli import main\n"
        "try: main()\nexcept SystemExit as done: assert done.code == 1, done.code\n"
        "assert not {'torch', 'numpy', 'hypothesis'} & sys.modules.keys()"
    )
    command = [sys.executable, "-c", code, "diff", reports / "good.json", reports / "late.json"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


# What would hide a regression, or make one up


def test_what_a_fix_uncovers_is_told_and_no_regression():
    cause = verdict("failed", "no", claim="b.two")
    old, new = report(cause, BLOCKED), report(verdict(claim="b.two"), FAILED)
    difference = compare(old, new)
    assert kinds(difference)["newly_failing"] == 1
    assert not difference.regressions


def test_of_two_objects_of_one_name_the_broken_one_counts():
    for new in (report(FAILED, verdict()), report(verdict(), FAILED)):
        assert compare(report(verdict()), new).regressions


def test_an_object_that_calls_itself_a_dash_counts():
    assert compare(report(verdict(on="—")), report(verdict("failed", "no", on="—"))).regressions


def test_a_claim_that_is_only_advice_now_was_required_before():
    advice = verdict("failed", "no", level="SHOULD")
    assert compare(report(verdict()), report(advice)).regressions
    assert not compare(report(verdict(level="SHOULD")), report(advice)).regressions


def test_a_message_that_was_cut_has_the_fingerprint_of_the_same_cut_elsewhere():
    long = "the call failed: RuntimeError: bad values tensor([[0.1, 0.25], [0.3"
    one, other = verdict("errored", long), verdict("errored", f"{long}25], [1e-0")
    assert fingerprint(one) == fingerprint(other)
    tail = " and then " * 40
    assert fingerprint(verdict("errored", f"x{tail}")) == fingerprint(verdict("errored", f"x{tail}{tail}"))

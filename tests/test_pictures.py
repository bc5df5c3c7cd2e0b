"""Pictures of failures: the right cells are marked, the axes count on, and what is drawn is what was compared."""

import re

import pytest
from triu.conformance import check
from triu.conformance.api import open_check, select
from triu.reports import to_html
from triu.reports.feedback import problem_of
from triu.reports.pictures import drawn
from triu.spec import Picture


def picture_of(target, claim):
    report = check(target, claims=claim)
    return next(v.failure.picture for v in report.verdicts if v.claim == claim and v.failure)


def test_a_mask_that_begins_one_late_leaks_the_next_input_alone():
    picture = picture_of("mutant:lm-mask-one-late", "language-model.no-future")
    assert picture.kind == "leak"
    assert (picture.rows, picture.columns) == ("output", "input")
    assert picture.size[0] >= 4
    assert {(i, i + 1) for i in range(picture.size[0] - 1)} <= set(picture.wrong)
    assert picture.expected == tuple(tuple(int(j <= i) for j in range(5)) for i in range(5))


def test_an_input_that_reaches_nothing_is_an_empty_column():
    picture = picture_of("mutant:block-self-attention-left-out", "decoder-block.reach")
    n = picture.size[0]
    assert picture.observed == tuple(tuple(int(i == j) for j in range(n)) for i in range(n))
    assert set(picture.wrong) == {(i, j) for i in range(n) for j in range(i)}


def test_rows_that_do_not_sum_to_one_are_marked_in_the_weights():
    picture = picture_of("mutant:attention-softmax-then-zero", "attention.row-sums")
    assert (picture.rows, picture.columns) == ("query", "key")
    rows = {i for i, _ in picture.wrong}
    sums = [sum(row) for row in picture.observed]
    assert rows == {i for i, total in enumerate(sums) if abs(total - 1) > 1e-3}
    assert all(abs(sum(row) - 1) < 1e-2 for row in picture.expected)


def test_an_encoding_is_shown_whole_whatever_the_claim_is_about():
    picture = picture_of("mutant:positions-base-1000", "positional-encoding.one")
    assert picture.kind == "positions"
    assert (picture.rows, picture.columns) == ("position", "coordinate")
    assert picture.size == (33, 16)
    assert picture.case == {"T": 33, "d": 16}
    assert not any(i == 0 for i, _ in picture.wrong)  # at position 0 no base shows
    assert len(drawn(picture).panels) == 4  # two heat maps, two curves


def test_what_is_not_compared_is_blank():
    picture = picture_of("mutant:attention-mask-dropped", "attention.blocked-zero")
    values = [v for row in picture.expected for v in row]
    assert set(values) == {None, 0}
    assert {picture.expected[i][j] for i, j in picture.wrong} == {0}
    assert "any" in "".join(panel for _, panel in drawn(picture).panels)


def test_a_failure_that_is_no_matter_of_matrices_has_no_picture():
    assert picture_of("mutant:stack-table-indexed", "decoder-stack.negative-ids") is None


# Drawing


def picture(observed, expected=None, **more):
    rows = tuple(map(tuple, observed))
    given = {
        "kind": "matrix",
        "rows": "query",
        "columns": "key",
        "expected": None if expected is None else tuple(map(tuple, expected)),
        "wrong": ((0, 1),),
        "start": (0, 0),
        "size": (len(rows), len(rows[0])),
    }
    return Picture(**{**given, "observed": rows, **more})


def texts(svg):
    return re.findall(r"<text(?![^>]*axis)[^>]*>([^<]*)</text>", svg)


def test_cells_have_their_numbers_and_axes_count_from_where_the_window_begins():
    shown = drawn(picture([[0.5, 0.25], [0, 1]], [[0.5, 0.5], [0, 1]], start=(30, 7), size=(40, 40)))
    (_, right), (_, found) = shown.panels
    assert texts(right) == [".50", ".50", "0", "1"]
    assert texts(found) == [".50", ".25", "0", "1"]
    axis = re.findall(r'<text class="axis[^>]*>([^<]*)<', found)
    assert {"7", "8", "30", "31"} <= set(axis)
    assert "queries 30 to 31 of 40 and keys 7 to 8 of 40" in shown.caption
    assert "1 wrong: (30, 8)" in found


@pytest.mark.parametrize(
    ("value", "shade", "text"),
    [("nan", "nan", "nan"), ("inf", "nan", "inf"), (-2.0, "n4", "-2.00"), (0.02, "z", ".02")],
)
def test_signs_and_what_is_not_finite_have_shades_of_their_own(value, shade, text):
    (_, svg), *_ = drawn(picture([[value, 2.0, -2.0]])).panels
    assert f'class="{shade}"' in svg
    assert texts(svg)[0] == text


def test_the_outline_goes_around_what_is_wrong_and_not_through_it():
    (_, one), *_ = drawn(picture([[1, 1], [1, 1]], wrong=((0, 0),))).panels
    (_, two), *_ = drawn(picture([[1, 1], [1, 1]], wrong=((0, 0), (0, 1)))).panels
    edges = [len(re.findall("M", re.search(r'class="wrong" d="([^"]*)"', svg)[1])) for svg in (one, two)]
    assert edges == [4, 6]


def test_what_a_stored_report_says_in_a_picture_is_text():
    evil = "<script>alert(1)</script>"
    shown = drawn(picture([[evil, 1]], rows=evil, columns=f'" onload="{evil}', case={evil: evil}))
    assert "<script>" not in "".join(panel for _, panel in shown.panels)


def test_the_same_picture_is_drawn_once_for_an_object():
    report = check("mutant:positions-base-1000", claims="positional-encoding.*")
    failed = next(v for v in report.verdicts if v.failure and v.failure.picture)
    told = set()
    first, second = (problem_of(failed, failed.failure, "what", False, told) for _ in range(2))
    assert first.picture.panels
    assert not second.picture.panels
    assert "same as above" in second.picture.caption
    assert to_html(report).count("<svg") >= 4


def test_a_picture_never_makes_a_verdict(monkeypatch):
    from triu.conformance.engine import pictures

    before = check("mutant:attention-softmax-then-zero", claims="attention.row-sums")

    def boom(*_):
        raise RuntimeError("boom")

    monkeypatch.setattr(pictures, "_larger", boom)
    after = check("mutant:attention-softmax-then-zero", claims="attention.row-sums")
    assert [v.verdict for v in after.verdicts] == [v.verdict for v in before.verdicts] == ["failed"]
    assert after.verdicts[0].failure.picture is None
    assert before.verdicts[0].failure.picture is not None


SLOW = '''
import time, torch
calls = 0
def causal_mask(T):
    """True = blocked"""
    global calls
    if T == 6 and calls > 40:
        time.sleep(600)
    calls += 1
    m = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
    if T > 1:
        m[0, 1] = False
    return m
'''


def test_a_candidate_that_hangs_over_a_picture_keeps_its_verdicts(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    opened = open_check(tmp_path / "slow.py", call_seconds=6.0)
    claims = select(opened.spec, "causal-mask.*")
    try:
        without = opened.report(claims, pictures=False)
    finally:
        opened.close()
    opened = open_check(tmp_path / "slow.py", call_seconds=6.0)
    try:
        drawn_too = opened.report(claims)
    finally:
        opened.close()
    assert [(v.claim, v.verdict) for v in drawn_too.verdicts] == [
        (v.claim, v.verdict) for v in without.verdicts
    ]


def test_a_count_is_drawn_on_a_larger_case():
    picture = picture_of("mutant:mask-one-late", "causal-mask.total")
    assert picture.size == (6, 6)
    assert set(picture.wrong) == {(i, i + 1) for i in range(5)}

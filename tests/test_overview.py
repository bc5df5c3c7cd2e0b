"""The page on a class: its counts are right, it is complete whatever was graded when, and it runs nothing of others."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from click.testing import CliRunner
from triu.conformance.cli import main
from triu.conformance.grading import batch
from triu.reports.overview import broken_alone, overview, overview_html
from triu.spec import Failure, Grade, Item, ItemScore, Likely, Milestone, Profile, Report, Verdict

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\" onload='x' &lt;b&gt; \x1b[31mred\u202eevil\x00 "
    "{{ 7 * 7 }} {% raw %} javascript:alert(3)"
)
NAMES = (
    "ada", "Ada Lovelace", "a#b", "a?b=c", "100%25", 'say "x"', "o'neil", "..dots", "Björk", "张伟", "a&amp;b",
    "javascript:alert(1)", "<img src=x onerror=alert(1)>", "//elsewhere.example", "a;b", "-", "~",
)  # fmt: skip
A = (
    Item("mask", "Mask", "A", ("m.shape", "m.pattern"), Decimal(4)),
    Item("rows", "Rows", "A", ("a.sums",), Decimal(4)),
)
B = (Item("block", "Block", "B", ("b.norm",), Decimal(2)),)
PROFILE = Profile(
    "lesson", "Masked attention", "", (), (Milestone("A", "The mask", A), Milestone("B", "The block", B))
)
MASK = """\
title = "A mask"
[[milestone]]
id = "A"
title = "The mask"
[[milestone.item]]
id = "pattern"
title = "The mask hides the future, and nothing else"
claims = ["causal-mask.shape", "causal-mask.pattern"]
points = 10
"""


def mistake(mutant):
    return Likely(mutant, f"They think {mutant}.", f"Undo {mutant}.", 3, 3)


def verdict(claim, outcome="failed", *, likely=None, object="f"):
    failure = Failure("it breaks", case={"T": 3}, likely=likely and mistake(likely)) if likely else None
    return Verdict(claim, f"Property {claim}", "r", "MUST", object, outcome, failure=failure)


def grade(name, *points, verdicts=(), seconds=4.0, statuses=None, profile=PROFILE):
    """A graded submission: points for each item, verdicts each to the items that count its claim."""
    scored = tuple(
        ItemScore(item, Decimal(str(n)), status, tuple(v for v in verdicts if v.claim in item.claims))
        for item, n, status in zip(profile.items, points, statuses or ("partial",) * len(points), strict=True)
    )
    return Grade(
        name, (profile.id, profile.title), "graded", items=scored, max_score=profile.points,
        milestones=profile.milestones, seconds=seconds, report=Report({}, 0, (), tuple(verdicts), {}),
    )  # fmt: skip


def ungradable(name, word="not importable", reason="NameError: x", seconds=1.0):
    return Grade(
        name, (PROFILE.id, PROFILE.title), "ungradable", word, reason, max_score=PROFILE.points,
        milestones=PROFILE.milestones, seconds=seconds,
    )  # fmt: skip


CLASS = (
    grade("ada", 4, 4, 2),
    grade("ben", "1.5", 0, 2, verdicts=[verdict("m.pattern", likely="upside-down"), verdict("a.sums")]),
    grade("cy", 2, 0, 0, verdicts=[verdict("a.sums", "errored"), verdict("b.norm", "blocked")]),
    ungradable("dan"),
    ungradable("eve", "time-out", "it never ends"),
)


class Page(HTMLParser):
    """The tags, attributes and text of a page, and its rows of students with their tags."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text, self.open, self.rows = [], [], "", [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in ("meta", "br", "input"):
            self.open.append(tag)
        if "data-tags" in dict(attrs):
            self.rows.append([dict(attrs)["data-tags"], []])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.text += " " * (tag in ("th", "td"))

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text += data
        if self.rows and self.open[-1] in ("a", "td"):
            self.rows[-1][1].append(data)

    def values(self, name):
        return [value for _, found, value in self.attributes if found == name]

    @property
    def words(self):
        return " ".join(self.text.split())


# counts and shares


def test_the_class_is_told_in_a_sentence():
    words = Page(overview_html(CLASS, PROFILE)).words
    assert "3.5 of 10 points is the median; the range is 2 to 10." in words
    assert "5 submissions: 3 graded, 2 ungradable (1 not importable, 1 time-out)." in words


def test_the_median_of_an_even_number_lies_between():
    told = overview([grade("a", 4, 0, 0), grade("b", 1, 0, "0.33")], PROFILE)
    assert (told.median, told.low, told.high) == ("2.67", "1.33", "4")


def test_each_score_is_in_one_bar_and_all_points_are_in_the_last():
    told = overview([grade(str(n), 4, 0, x) for n, x in enumerate((0, "0.99", 1))] + [CLASS[0]], PROFILE)
    assert [(b.low, b.high, b.count) for b in told.bins if b.count] == [
        ("4", "5", 2),
        ("5", "6", 1),
        ("9", "10", 1),
    ]


def test_the_bars_are_told_in_words_too():
    page = Page(overview_html(CLASS, PROFILE))
    assert "Submissions by points: 0 to 1: 0; 1 to 2: 0; 2 to 3: 1; 3 to 4: 1; 4 to 5: 0;" in page.words
    assert "9 to 10 1" in page.words


def test_milestones_have_mean_median_share_and_what_is_missing():
    absent = grade("zoe", 0, 0, 0, statuses=("missing", "missing", "failed"))
    mask, block = overview([*CLASS, absent], PROFILE).parts
    assert (mask.mean, mask.points, mask.median, mask.share) == ("2.88", "8", "1.75", 36)
    assert (mask.full, mask.absent) == (1, 1)
    assert (block.mean, block.median, block.share, block.full, block.absent) == ("1", "1", 50, 2, 0)


def test_a_milestone_without_points_has_no_share():
    empty = replace(PROFILE, milestones=(*PROFILE.milestones, Milestone("C", "Nothing", ())))
    part = overview([grade("a", 4, 4, 2, profile=empty)], empty).parts[2]
    assert (part.mean, part.points, part.share) == ("0", "0", None)
    assert Page(overview_html(CLASS, empty)).words.count("all points:") == 2


def test_an_assignment_without_points_has_no_bars():
    free = replace(PROFILE, milestones=(Milestone("A", "The mask", (replace(A[0], points=Decimal(0)),)),))
    page = Page(overview_html([grade("a", 0, profile=free)], free))
    assert "rect" not in page.tags
    assert "0 of 0 points is the median" in page.words


def test_a_claim_counts_once_for_a_student_and_its_share_is_of_the_graded():
    twice = grade("zoe", 0, 0, 0, verdicts=[verdict("a.sums", object="f"), verdict("a.sums", object="g")])
    told = overview([*CLASS, twice], PROFILE)
    assert [(c.id, c.title, c.note, c.count, c.share) for c in told.claims] == [
        ("a.sums", "Property a.sums", "required", 3, 75),
        ("m.pattern", "Property m.pattern", "required", 1, 25),
    ]
    assert [student.broken for student in told.students] == ["0", "2", "1", "", "", "1"]


@pytest.mark.parametrize("outcome", ["passed", "blocked", "inconclusive", "unsupported", "suite_fault"])
def test_what_is_not_broken_is_not_counted(outcome):
    told = overview([grade("a", 0, 0, 0, verdicts=[verdict("a.sums", outcome, likely="x")])], PROFILE)
    assert (told.claims, told.mistakes) == ((), ())
    words = Page(overview_html([grade("a", 4, 4, 2)], PROFILE)).words
    assert "Nobody breaks a claim." in words
    assert "No known mistake was recognised." in words


def test_a_mistake_counts_once_for_a_student_whatever_it_breaks():
    both = [verdict("a.sums", likely="x"), verdict("b.norm", likely="x")]
    told = overview(
        [grade("a", 0, 0, 0, verdicts=both), grade("b", 0, 0, 0, verdicts=[*both, verdict("m.shape", likely="y")])],
        PROFILE,
    )  # fmt: skip
    assert [(m.id, m.title, m.note, m.count, m.share) for m in told.mistakes] == [
        ("x", "They think x.", "Undo x.", 2, 100),
        ("y", "They think y.", "Undo y.", 1, 50),
    ]


def test_a_button_selects_the_students_that_it_counts():
    page = Page(overview_html(CLASS, PROFILE))
    chosen = {
        token: [cells[0] for tags, cells in page.rows if token[1:] in tags.split()]
        for token in filter(None, page.values("data-search"))
    }
    assert chosen == {"#c1": ["ben", "cy"], "#c2": ["ben"], "#m1": ["ben"]}
    assert {f"#{name}" for name in page.values("aria-describedby")} == set(chosen)
    assert set(page.values("aria-describedby")) <= set(page.values("id"))


def test_more_claims_than_fit_are_folded_away():
    many = replace(A[0], claims=tuple(f"m.{n}" for n in range(12)))
    long = replace(PROFILE, milestones=(Milestone("A", "A", (many,)),))
    broken = grade("a", 0, verdicts=[verdict(claim) for claim in many.claims], profile=long)
    page = Page(overview_html([broken], long))
    assert "2 more" in page.words
    assert len([s for s in page.values("data-search") if s]) == 12


def test_slow_is_what_takes_far_longer_than_the_median():
    usual = [grade(f"u{n}", 4, 4, 2, seconds=4.0) for n in range(20)]
    slow = [grade(f"s{n}", 4, 4, 2, seconds=20.0 + n) for n in range(6)]
    nearly = grade("nearly", 4, 4, 2, seconds=11.0)
    told = overview([*usual, nearly, ungradable("loop", seconds=60.0), *slow], PROFILE)
    assert [student.name for student in told.slow] == ["loop", "s5", "s4", "s3", "s2"]
    assert overview([*usual, nearly], PROFILE).slow == ()
    quick = [replace(one, seconds=0.1) for one in usual]
    assert overview([*quick, grade("a second", 4, 4, 2, seconds=1.0)], PROFILE).slow == ()


def test_the_table_has_a_row_for_each_student_by_name():
    page = Page(overview_html(reversed([*CLASS, grade("Bea", 4, 4, "0.50")]), PROFILE))
    assert [cells for _, cells in page.rows] == [
        ["ada", "10", "8", "2", "graded", "0", "4.0"],
        ["Bea", "8.5", "8", "0.5", "graded", "0", "4.0"],
        ["ben", "3.5", "1.5", "2", "graded", "2", "4.0"],
        ["cy", "2", "2", "0", "graded", "1", "4.0"],
        ["dan", "–", "–", "–", "ungradable: not importable", "–", "1.0"],
        ["eve", "–", "–", "–", "ungradable: time-out", "–", "1.0"],
    ]


def test_where_nothing_could_be_graded_there_are_reasons_and_no_points():
    page = Page(overview_html([ungradable("dan"), ungradable("eve")], PROFILE))
    assert "2 submissions: 0 graded, 2 ungradable (2 not importable)." in page.words
    assert page.words.count("not importable: NameError: x") == 2
    for absent in ("median is 0", "of 10 points is", "Milestones", "Broken most often", "Nobody breaks"):
        assert absent not in page.words
    assert "rect" not in page.tags


def test_one_submission_is_a_class():
    words = Page(overview_html([CLASS[1]], PROFILE)).words
    assert "1 submission: 1 graded, 0 ungradable." in words
    assert "1 of 1 (100 %)" in words


def test_what_is_outdated_or_missing_is_told():
    page = Page(overview_html(CLASS, PROFILE, outdated=["ben"], missing=3))
    assert "3 submissions more have no grade for this assignment yet" in page.words
    assert "1 grade is from before a change" in page.words
    assert [cells[4] for _, cells in page.rows[:3]] == ["graded", "graded (outdated)", "graded"]
    calm = Page(overview_html(CLASS, PROFILE)).words
    assert "outdated" not in calm
    assert "no grade for this" not in calm


def test_a_grade_of_another_profile_is_refused():
    with pytest.raises(ValueError, match="graded by the profile 'other'"):
        overview([replace(CLASS[0], profile=("other", ""))], PROFILE)


# what was handed in is shown, never run


def hostile_class():
    bad = replace(verdict("a.sums", likely="x"), object=HOSTILE)
    bad = replace(bad, reason=HOSTILE, failure=replace(bad.failure, what=HOSTILE, hint=HOSTILE))
    return [
        grade(HOSTILE, 0, 0, 0, verdicts=[bad], seconds=90.0),
        *(replace(grade(f"u{n}", 0, 0, 0), notes=(HOSTILE,), output=HOSTILE) for n in range(3)),
        ungradable(f"{HOSTILE}2", HOSTILE, HOSTILE),
    ]


def calm_class():
    """The same shape without anything that looks like markup."""
    first, *usual, last = hostile_class()
    calm = [replace(one, notes=(), output="") for one in usual]
    return [replace(first, submission="b"), *calm, replace(last, submission="c", word="calm", reason="calm")]


def test_no_element_and_no_attribute_comes_from_a_submission():
    titled = replace(
        PROFILE, title=HOSTILE, milestones=tuple(replace(m, title=HOSTILE) for m in PROFILE.milestones)
    )
    hostile = Page(overview_html(hostile_class(), titled))
    calm = Page(overview_html(calm_class(), PROFILE))
    assert not {"img", "b", "iframe", "link"} & set(hostile.tags)
    assert hostile.tags.count("script") == calm.tags.count("script") == 1
    assert sorted(hostile.tags) == sorted(calm.tags)

    def inert(page):
        return sorted((tag, name, value) for tag, name, value in page.attributes if name != "href")

    assert inert(hostile) == inert(calm)
    assert "<script>alert(1)</script>" in hostile.text
    assert "{{ 7 * 7 }}" in hostile.text


def test_no_control_character_gets_through():
    text = overview_html(hostile_class(), PROFILE)
    assert not set(text) & set("\x00\x1b\u202e")


def test_each_name_leads_to_its_own_folder():
    page = Page(overview_html([grade(name, 4, 4, 2) for name in NAMES], PROFILE))
    links = [v for tag, name, v in page.attributes if (tag, name) == ("a", "href")]
    links = [link for link in links if link not in ("#students", "grades.csv")]
    assert {unquote(link) for link in links} == {f"submissions/{name}/feedback.html" for name in NAMES}
    for link in links:
        parts = urlsplit(link)
        assert (parts.scheme, parts.netloc, parts.query, parts.fragment) == ("", "", "", "")
        assert link.count("/") == 2
        assert link.isascii()
    shown = [cells[0] for _, cells in page.rows]
    assert sorted(shown) == sorted(NAMES)


# the page


def test_the_page_loads_nothing_and_only_controls_wait_for_the_script():
    text = overview_html(CLASS, PROFILE)
    page = Page(text)
    policy = page.values("content")[0]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")
    assert not {"src", "style", "onclick"} & {name for _, name, _ in page.attributes}
    assert {tag for tag, name, _ in page.attributes if name == "hidden"} == {"form", "button"}
    assert "not for students" in page.words


def test_headings_come_in_order_and_tables_have_captions_and_scopes():
    page = Page(overview_html([*CLASS, grade("slow", 4, 4, 2, seconds=99.0)], PROFILE))
    assert page.open == []
    levels = [int(tag[1]) for tag in page.tags if tag in ("h1", "h2", "h3", "h4")]
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.tags.count("caption") == page.tags.count("table") == 7
    scopes = [value for tag, name, value in page.attributes if tag == "th" and name == "scope"]
    assert len(scopes) == page.tags.count("th") > 0
    assert len(page.values("id")) == len(set(page.values("id")))


# what a batch keeps


def test_a_slim_grade_gives_the_same_page_and_keeps_little():
    slim = [batch.slim(one) for one in CLASS]
    assert overview_html(slim, PROFILE) == overview_html(CLASS, PROFILE)
    kept = [v for one in slim if one.report for v in one.report.verdicts]
    assert {v.verdict for v in kept} == {"failed", "errored"}
    assert not any(v.failure and (v.failure.what or v.failure.case) for v in kept)
    assert not any(scored.verdicts for one in slim for scored in one.items)


def test_equal_verdicts_of_a_class_are_one_object():
    one, other = (broken_alone([verdict("a.sums", likely="x", object=name)]) for name in "fg")
    assert one[0] is other[0]
    assert one[0] is not broken_alone([verdict("a.sums", likely="y")])[0]
    assert len(broken_alone([verdict("a.sums", object=name) for name in "fgh"])) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
def test_a_resumed_run_writes_the_page_of_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batch, "local", lambda _: lambda: ThreadPoolExecutor(1))
    good = (
        "import torch\n\ndef build_causal_mask(T):\n    return torch.ones(T, T, dtype=torch.bool).triu(1)\n"
    )
    (tmp_path / "in").mkdir()
    for name, text in {
        "ada": good,
        "b #1": good.replace("triu(1)", "triu(2)"),
        "cy": "def f(:",
    }.items():
        (tmp_path / "in" / f"{name}.py").write_text(text)
    (tmp_path / "profile.toml").write_text(MASK)
    page = tmp_path / "out" / "index.html"

    def triu(*more):
        request = [
            "grade",
            tmp_path / "in",
            "--profile",
            tmp_path / "profile.toml",
            "--out",
            tmp_path / "out",
        ]
        done = CliRunner().invoke(main, [*map(str, request), "--examples", "4", "-q", *more])
        assert done.exit_code == 0, done.output
        assert f"{page}: the class at a glance" in done.output.splitlines()[-2]
        return page.read_text("utf-8")

    assert "2 submissions more have no grade" in Page(triu("--only", "ada")).words
    whole = triu()
    told = Page(whole)
    assert [cells[0] for _, cells in told.rows] == ["ada", "b #1", "cy"]
    assert [len(tags) > 0 for tags, _ in told.rows] == [False, True, False]
    assert "causal-mask.total" in told.words, "no item counts it, but others rest on it"
    link = next(value for value in told.values("href") if "%231" in value)
    assert (tmp_path / "out" / unquote(link)).is_file()
    page.write_text("something else")
    assert triu() == whole, "all grades are read from the output folder"
    assert triu("--only", "b #1") == whole

"""What a grade looks like in files: nothing is lost, nothing hidden is told, nothing that was handed in is run."""

import csv
import io
import json
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from triu.conformance import check
from triu.reports.feedback import feedback_html, feedback_markdown
from triu.reports.grade_json import grade_from_json, grade_to_json
from triu.reports.gradebook import gradebook_csv
from triu.reports.gradescope import gradescope_results
from triu.spec import Evidence, Failure, Grade, Item, ItemScore, Likely, Milestone, Profile, Report, Verdict

EXAMPLES = Path(__file__).parents[1] / "examples"
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\" onload='x' &lt;b&gt; "
    "**bold** [link](javascript:x) `code` \x1b[31mred\u202eevil\u2066\x00 {{ 7 * 7 }} {% raw %} ``` | # head"
)
SECRET = "0.8664581"
SEED = 907198463
WAYS = {"markdown": feedback_markdown, "html": feedback_html, "gradescope": gradescope_results}


def item(name, *claims, points="4", milestone="A", **more):
    return Item(name, f"Item {name}", milestone, claims, Decimal(points), **more)


def verdict(claim, outcome, failure=None, *, title=None, reason="", object="attention", level="MUST"):
    return Verdict(
        claim,
        title or f"Property {claim}",
        "attention",
        level,
        object,
        outcome,
        Evidence(9, ("T > 1",), (), ()),
        None,
        reason,
        failure,
    )


LIKELY = Likely(
    "softmax-first", "The softmax runs first.", "Put -inf into the scores.", cases=7331, telling=7331
)


def broken(text="the sum of a row is 0.5", **more):
    given = {
        "expected": [[1.0, 0.0]],
        "observed": [[0.25, 0.75]],
        "index": (0, 1),
        "wrong": ((0, 0), (0, 1)),
        "case": {"T": 2, "mask": "causal", "seed": SEED},
        "told": ("T", "mask"),
        "inputs": {"query": [[-1.1]]},
        "hint": "Mask the scores first.",
        "snippet": "import torch\nprint(attention(query=1))",
        "likely": LIKELY,
    }
    return Failure(text, **{**given, **more})


def made(*scored, **more):
    """A graded submission with these items."""
    milestones = tuple(
        Milestone(m, f"Milestone {m}", tuple(s.item for s in scored if s.item.milestone == m))
        for m in dict.fromkeys(s.item.milestone for s in scored)
    )
    verdicts = tuple(v for s in scored for v in s.verdicts)
    given = {
        "submission": "group 7",
        "profile": ("lesson", "Masked attention"),
        "status": "graded",
        "items": scored,
        "max_score": sum((s.item.points for s in scored), Decimal(0)),
        "seed": SEED,
        "seconds": 12.3456,
        "milestones": milestones,
        "report": Report({"target": "x.py", "kind": "file"}, SEED, (), verdicts, {"python": "3.11"}),
        "layers": ("rlimits", "seccomp"),
        "extra": {"digest": "abc"},
    }
    return Grade(**{**given, **more})


def failed(name="sums", *, claim="attention.sums", failure=None, **more):
    return ItemScore(
        item(name, claim, **more), Decimal("0"), "failed", (verdict(claim, "failed", failure or broken()),)
    )


PASSED = ItemScore(item("shape", "a.shape", points="0.10"), Decimal("0.10"), "passed", ())


def ungradable(**more):
    given = {
        "status": "ungradable",
        "word": "not importable",
        "reason": "NameError: name 'x' is not defined (x.py, line 3)",
        "report": None,
    }
    return replace(made(), **{**given, **more})


class Page(HTMLParser):
    """The tags, attributes and text of a page."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text, self.open = [], [], "", []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data


@pytest.fixture(scope="module")
def real():
    """A grade made from a real check."""
    report = check(EXAMPLES / "softmax_then_zero.py", in_process=True, claims="attention.*")
    claims = tuple(v.claim for v in report.verdicts)
    scored = ItemScore(item("all", *claims, points="10"), Decimal("3.33"), "partial", report.verdicts)
    return made(scored, report=report, seed=report.seed)


# JSON


def test_a_grade_comes_back_equal(real):
    hand = made(failed(failure=broken(error={"type": "ValueError", "line": 3})), PASSED, notes=("cell 3",))
    for grade in (real, hand, ungradable(), made()):
        assert grade_from_json(grade_to_json(grade)) == grade


def test_points_are_exact_decimals_in_json():
    text = grade_to_json(made(PASSED))
    assert json.loads(text)["items"][0]["score"] == "0.10"
    assert str(grade_from_json(text).score) == "0.10"


def test_what_is_not_finite_stays_readable():
    grade = made(failed(failure=broken(observed=[[float("nan"), float("inf")]])))
    text = grade_to_json(grade)
    again = grade_from_json(text)
    assert grade_to_json(again) == text
    assert feedback_markdown(again) == feedback_markdown(grade)


@pytest.mark.parametrize("part", [0, 1, 200, -200, -3])
def test_a_grade_cut_short_is_recognised(part):
    with pytest.raises(ValueError, match="cut short"):
        grade_from_json(grade_to_json(made(PASSED))[:part])


def _without(document, key):
    del document[key]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format=7), "format 7, this triu reads 1"),
        (lambda d: _without(d, "format"), "no format"),
        (lambda d: _without(d, "items"), "lacks a part.*items"),
        (lambda d: d.update(status="fine"), "'fine' is none of graded, ungradable"),
        (lambda d: d["items"][0].update(score="x"), "lacks a part"),
        (lambda d: d.update(score="9"), "its score is 9, its items sum to 0.10"),
        (lambda d: d["report"].update(format=99), "this report has the format 99"),
        (lambda d: d["items"][0]["item"].update(colour="red"), "colour"),
    ],
)
def test_what_is_no_grade_is_refused(change, message):
    document = json.loads(grade_to_json(made(PASSED)))
    change(document)
    with pytest.raises(ValueError, match=message):
        grade_from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["[]", "3", '"x"', "{}", "[" * 100_000])
def test_other_json_is_refused(text):
    with pytest.raises(ValueError, match="no triu grade"):
        grade_from_json(text)


# what a student sees


@pytest.mark.parametrize("way", WAYS)
def test_a_broken_property_is_told_with_all_that_helps(real, way):
    text = WAYS[way](real)
    if way == "html":
        text = Page(text).text
    if way == "gradescope":
        text = json.loads(text)["tests"][0]["output"]
    text = " ".join(text.replace("\\", "").split())
    for piece in (
        "Each row of weights sums to 1",
        "0.866458, expected 1",
        "expected [1] observed [0.8665]",
        "B=1, h=1, T=1, S=2",
        "weights are zeroed afterwards",
        "Put -inf into the blocked scores",
        "from softmax_then_zero import attention",
        "partly right",
        "3.33 of 10",
        "it has no is_causal",
    ):
        assert piece in text, piece
    assert text.count("Not tried until “Each row of weights sums to 1” is right:") == 1
    assert "and 20 more" in text


def test_the_same_mistake_is_told_once():
    text = feedback_markdown(made(failed("one", claim="a"), failed("two", claim="b")))
    assert text.count("The softmax runs first") == 1
    assert text.count("Put \\-inf") == 1
    assert "**Likely mistake:** the same as above" in text


def test_the_same_error_is_told_once():
    error = broken("the call failed: TypeError: no", likely=None)
    verdicts = tuple(verdict(c, "errored", error) for c in ("a", "b", "c"))
    scored = ItemScore(item("x", "a", "b", "c"), Decimal(0), "failed", verdicts)
    text = feedback_markdown(made(scored))
    assert text.count("TypeError") == 1
    assert "The same as above: Property b; Property c" in text


def test_what_an_item_waits_for_is_told_even_if_it_is_part_of_no_item():
    waiting = verdict("b", "blocked", reason="rests on a")
    cause = verdict("a", "failed", broken(), title="The base")
    scored = ItemScore(item("x", "b"), Decimal(0), "failed", (waiting,))
    report = Report({"target": "x.py", "kind": "file"}, 0, (), (waiting, cause), {})
    text = feedback_markdown(made(scored, report=report))
    assert "Not tried until “The base” is right: Property b" in text
    assert "the sum of a row is 0" in text
    hidden = replace(scored, item=replace(scored.item, hidden=True))
    assert "the sum of a row" not in feedback_markdown(made(hidden, report=report))


def test_what_does_not_concern_a_submission_is_told_only_where_points_were_lost():
    outside = verdict("b", "unsupported", reason="it takes single sequences")
    for status, told in (("passed", False), ("partial", True)):
        text = feedback_markdown(made(ItemScore(item("x", "b"), Decimal(4), status, (outside,))))
        assert ("Property b \\(it takes single sequences\\)" in text) is told


def test_a_role_that_is_missing_is_told_of_hidden_items_too():
    absent = verdict("b", "unsupported", reason="it provides no attention", object="—")
    for hidden in (False, True):
        text = feedback_markdown(
            made(ItemScore(item("x", "b", hidden=hidden), Decimal(0), "missing", (absent,)))
        )
        assert "Not judged, because it provides no attention: Property b" in text


def test_a_fault_of_the_suite_is_not_laid_at_the_student():
    fault = verdict("a", "suite_fault", Failure("engine.py: KeyError"), reason="engine.py: KeyError")
    text = feedback_markdown(made(ItemScore(item("x", "a"), Decimal(0), "not judged", (fault,))))
    assert "says nothing about your code" in text
    assert "KeyError" not in text


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("status", ["passed", "partial", "failed", "missing", "not judged"])
def test_a_status_is_told_in_words(way, status):
    words = {"partial": "partly right", "failed": "not right yet", "missing": "not provided"}
    scored = ItemScore(item("x", "a"), Decimal(0), status, ())
    assert words.get(status, status) in WAYS[way](made(scored))


@pytest.mark.parametrize("way", WAYS)
def test_no_seed_is_told(way):
    grade = made(failed(), PASSED, notes=("a note",))
    assert str(SEED) in grade_to_json(grade)
    assert str(SEED) not in WAYS[way](grade)


@pytest.mark.parametrize("way", WAYS)
def test_notes_and_output_are_told_and_output_is_cut(way):
    text = WAYS[way](made(PASSED, notes=("cell 3 failed",), output="hello\n" * 5000))
    assert "cell 3 failed" in text
    assert "… (cut)" in text
    assert 100 < text.count("hello") < 1000


@pytest.mark.parametrize("way", WAYS)
def test_an_ungradable_submission_says_why_and_what_to_do_and_has_no_points(way):
    text = WAYS[way](ungradable(output="it began"))
    shown = Page(text).text if way == "html" else text.replace("\\", "")
    assert "name 'x' is not defined (x.py, line 3)" in shown
    assert "restart and run all" in shown
    assert "This is not 0 points" in shown
    assert "it began" in shown
    assert "0 of" not in shown


def test_a_fault_of_the_grader_is_not_laid_at_the_student():
    assert "says nothing about your code" in feedback_markdown(ungradable(word="grader"))


# hidden items


def leaking(outcome, **more):
    failure = broken(
        f"the entry is {SECRET}",
        expected=[[float(SECRET)]],
        observed=SECRET,
        case={"T": SECRET, "seed": SEED},
        told=("T",),
        snippet=f"print({SECRET})",
        meant=f"correct if you meant {SECRET}",
        error={
            "type": "ValueError",
            "message": f"bad {SECRET}",
            "file": "attention.py",
            "line": 12,
            "code": SECRET,
        },
        **more,
    )
    return verdict("secret", outcome, failure, title="Rows sum to 1", reason=f"not seen: {SECRET}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("outcome", ["failed", "errored", "inconclusive", "suite_fault", "unsupported"])
def test_of_a_hidden_item_no_case_is_told(way, outcome):
    scored = ItemScore(item("x", "secret", hidden=True), Decimal(0), "failed", (leaking(outcome),))
    text = WAYS[way](made(scored, output=f"query = {SECRET}"))
    assert SECRET not in text
    assert "7331" not in text
    assert "Rows sum to 1" in text
    assert "hidden" in text
    if outcome == "errored":
        assert "ValueError (attention.py, line 12)" in text.replace("\\", "")
    if outcome in ("failed", "errored"):
        assert "The softmax runs first" in text
        assert "into the scores" in text


@pytest.mark.parametrize(
    "error",
    [
        {"type": f"E{SECRET}", "file": "x.py", "line": 1},
        {"type": "ValueError", "file": f"{SECRET}.py", "line": 1},
        {"type": "ValueError", "file": "x.py", "line": SECRET},
    ],
)
def test_no_name_of_an_error_or_a_file_carries_a_hidden_case_out(error):
    hidden = verdict("a", "errored", Failure("x", error=error))
    text = feedback_markdown(made(ItemScore(item("x", "a", hidden=True), Decimal(0), "failed", (hidden,))))
    assert SECRET not in text.replace("\\", "")


def test_output_is_withheld_only_where_it_may_tell_hidden_cases():
    hidden = ItemScore(item("x", "a", hidden=True), Decimal(4), "passed", ())
    for told, grade in (
        (True, made(PASSED, output="printed")),
        (False, made(PASSED, hidden, output="printed")),
        (True, ungradable(word="not importable", output="printed")),
        (False, ungradable(word="crash", output="printed")),
        (True, ungradable(word="crash", output="printed", milestones=made(PASSED).milestones)),
    ):
        text = feedback_markdown(grade)
        assert ("printed\n```" in text) is told
        assert ("not shown, because some of the cases are hidden" in text) is not told


def test_hidden_items_keep_their_line_in_gradescope():
    hidden = ItemScore(item("x", "a", hidden=True), Decimal(4), "passed", ())
    test = json.loads(gradescope_results(made(hidden)))["tests"][0]
    assert (test["visibility"], test["score"], test["status"]) == ("visible", 4, "passed")


# what was handed in is shown, never run


def hostile_grade():
    failure = broken(
        HOSTILE,
        observed=HOSTILE,
        expected=HOSTILE,
        case={"T": HOSTILE},
        told=("T",),
        snippet=HOSTILE,
        meant=HOSTILE,
        hint=HOSTILE,
        likely=None,
    )
    bad = verdict("a", "failed", failure, object=HOSTILE, title=HOSTILE)
    odd = verdict("b", "unsupported", object=HOSTILE, reason=HOSTILE)
    stuck = verdict("c", "blocked", reason=f"rests on {HOSTILE}")
    scored = ItemScore(item("x", "a", "b", "c"), Decimal(0), "failed", (bad, odd, stuck))
    return made(scored, submission=HOSTILE, notes=(HOSTILE,), output=HOSTILE, profile=("lesson", HOSTILE))


def calm_grade():
    """The same shape without anything that looks like markup."""
    document = grade_to_json(hostile_grade())
    return grade_from_json(document.replace(json.dumps(HOSTILE, ensure_ascii=False)[1:-1], "calm"))


@pytest.mark.parametrize("make", [hostile_grade, lambda: ungradable(reason=HOSTILE, submission=HOSTILE)])
def test_no_element_and_no_attribute_comes_from_a_submission(make):
    page = Page(feedback_html(make()))
    assert not {"script", "img", "b", "a", "link", "iframe", "form"} & set(page.tags)
    assert {name for _, name, _ in page.attributes} <= {
        *("lang", "charset", "http-equiv", "content", "name", "class", "scope", "tabindex", "role"),
        *("aria-label", "aria-hidden", "open"),
    }
    assert not any("alert" in (value or "") for *_, value in page.attributes)
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7 * 7 }}" in page.text


def test_a_hostile_page_has_the_elements_of_a_calm_one():
    hostile, calm = Page(feedback_html(hostile_grade())), Page(feedback_html(calm_grade()))
    assert "calm" in calm.text
    assert hostile.tags == calm.tags
    assert hostile.attributes == calm.attributes


@pytest.mark.parametrize("way", WAYS)
def test_no_control_character_gets_through(way):
    text = WAYS[way](hostile_grade())
    if way == "gradescope":
        text = json.dumps(json.loads(text), ensure_ascii=False)
    assert not set(text) & set("\x00\x1b\u202e\u2066")


def outside_of_fences(text):
    """The lines of Markdown that are not within fenced blocks."""
    fence = ""
    for line in text.split("\n"):
        if fence:
            fence = "" if line == fence else fence
        elif line.startswith("```"):
            fence = line.rstrip("abcdefghijklmnopqrstuvwxyz")
        else:
            yield line
    assert not fence


def test_markdown_of_a_submission_stays_text():
    for line in outside_of_fences(feedback_markdown(hostile_grade())):
        for raw in ("<script", "<img", "[link]", "`code`", "&lt;", "**bold"):
            assert raw not in line.replace("\\<", "").replace("\\[", "").replace("\\*", "").replace("\\&", "")
    hostile, calm = (list(outside_of_fences(feedback_markdown(g))) for g in (hostile_grade(), calm_grade()))
    assert len(hostile) == len(calm)
    assert [line[:2] == "# " for line in hostile] == [line[:2] == "# " for line in calm]


def test_gradescope_renders_nothing():
    document = json.loads(gradescope_results(hostile_grade()))
    assert document["output_format"] == "text"
    assert {(t["output_format"], t["name_format"]) for t in document["tests"]} == {("text", "text")}


# the page


def test_the_page_loads_and_runs_nothing():
    page = Page(feedback_html(made(failed())))
    contents = [value for tag, name, value in page.attributes if (tag, name) == ("meta", "content")]
    assert contents[0] == "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    assert not {"src", "href", "style", "onclick"} & {name for _, name, _ in page.attributes}


def test_headings_come_in_order_and_tables_have_scopes():
    page = Page(feedback_html(made(failed(), replace(PASSED, item=replace(PASSED.item, milestone="B")))))
    assert page.open == []
    levels = [int(tag[1]) for tag in page.tags if tag in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert {1, 2, 3, 4} == set(levels)
    assert all(after - before <= 1 for before, after in pairwise(levels))
    scopes = [value for tag, name, value in page.attributes if tag == "th" and name == "scope"]
    assert len(scopes) == page.tags.count("th") > 0
    assert page.tags.count("caption") == page.tags.count("table") == 3
    assert ("html", "lang", "en") in page.attributes


# Gradescope


def test_the_results_have_the_fields_that_gradescope_reads():
    third = ItemScore(
        item("c", "x", points="3", milestone="B"), Decimal("1.01"), "partial", (verdict("x", "passed"),)
    )
    text = gradescope_results(made(failed(), PASSED, third))
    document = json.loads(text, parse_float=Decimal)
    assert "score" not in document
    assert document["visibility"] == "visible"
    assert document["stdout_visibility"] == "hidden"
    assert document["execution_time"] == Decimal("12.346")
    assert [(t["number"], t["score"], t["max_score"], t["status"]) for t in document["tests"]] == [
        ("1.1", 0, 4, "failed"),
        ("1.2", Decimal("0.1"), Decimal("0.1"), "passed"),
        ("2.1", Decimal("1.01"), 3, "failed"),
    ]
    assert "Milestone B: 1.01 of 3 points" in document["output"]


def test_an_ungradable_submission_records_no_score_in_gradescope():
    document = json.loads(gradescope_results(ungradable()))
    assert "score" not in document
    (test,) = document["tests"]
    assert not {"score", "max_score"} & test.keys()
    assert test["status"] == "failed"
    assert "name 'x' is not defined" in test["output"]


# the gradebook

PROFILE = Profile(
    "lesson",
    "Masked attention",
    "",
    (),
    (
        Milestone("A", "Milestone A", (item("shape", "a"), item("sums", "b"))),
        Milestone("B", "B", (item("c", "c", milestone="B", points="2.5"),)),
    ),
)


def rows(text):
    assert text.startswith("\ufeff")
    return list(csv.reader(io.StringIO(text[1:], newline="")))


def test_the_gradebook_has_a_row_a_submission_in_order():
    third = ItemScore(item("c", "c", milestone="B", points="2.5"), Decimal("1.50"), "partial", ())
    grades = [
        made(PASSED, submission="zoë"),
        ungradable(submission="anna"),
        made(failed(), PASSED, third, submission="mia"),
    ]
    text = gradebook_csv(grades, PROFILE)
    assert text.endswith("\r\n")
    assert rows(text) == [
        ["submission", "score", "max_score", "status", "A", "B", "reason"],
        ["anna", "", "10.5", "ungradable", "", "", "NameError: name 'x' is not defined (x.py, line 3)"],
        ["mia", "1.6", "10.5", "graded", "0.1", "1.5", ""],
        ["zoë", "0.1", "10.5", "graded", "0.1", "0", ""],
    ]


@pytest.mark.parametrize(
    "name", ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\n=1", "  =1", "＝1", "\tx", "x;=1", 'x";\n@1']
)
def test_no_cell_is_computed(name):
    text = gradebook_csv([ungradable(submission=name, reason=name)], PROFILE)
    (row,) = rows(text)[1:]
    for cell in (row[0], row[-1]):
        assert cell.startswith("'") or name.startswith("x")
        for piece in cell.split(";"):
            assert piece.lstrip(' "')[:1] not in tuple("=+-@＝\t\r")


def test_harmless_names_stay_as_they_are():
    text = gradebook_csv([made(PASSED, submission="o'neil-x=1, group 2")], PROFILE)
    assert rows(text)[1][0] == "o'neil-x=1, group 2"


def test_a_grade_of_another_profile_is_refused():
    with pytest.raises(ValueError, match="graded by the profile 'other'"):
        gradebook_csv([made(PASSED, profile=("other", ""))], PROFILE)

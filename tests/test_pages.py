"""Pages in a real browser: they run nothing of a candidate's, ask for nothing, and fit a phone."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from triu.conformance import check
from triu.conformance.audit import audit
from triu.conformance.grading.profile import load_profile, score
from triu.reports import notebook_html, to_html
from triu.reports.audit_html import audit_html
from triu.reports.overview import overview_html
from triu.reports.pages import page
from triu.reports.table import table_html, tabled
from triu.spec import Grade, lesson_files, load_lesson, load_spec

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
WIDTHS = (1200, 390)


@pytest.fixture(scope="module")
def reports():
    return {
        "conforming": check(EXAMPLES / "lesson_fused.py"),
        "broken": check(HERE / "pages" / "broken.py"),
        "hostile": check(HERE / "pages" / "hostile.py"),
    }


EVIL = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def a_class_of_200(reports):
    """Their grades by the items of an assignment: conforming, broken and hostile ones, under names of all kinds."""
    profile = load_profile("lesson-85", load_spec())
    grades = []
    for n in range(200):
        name = (f"student {n}", f"Björk O'Neil {n}", f"{EVIL} {n}", f"a#b?c=%25&d {n}")[n % 4]
        report = list(reports.values())[n % 3]
        verdicts = [v for v in report.verdicts if v.claim in profile.claims]
        known = {v.claim for v in verdicts}
        report = replace(report, verdicts=tuple(verdicts))
        told = {
            "status": "graded",
            "report": report,
            "milestones": profile.milestones,
            "max_score": profile.points,
        }
        if n % 17 == 16 or known < set(profile.claims):
            told = {"status": "ungradable", "word": "crash", "reason": EVIL, "max_score": profile.points}
        items = score(profile, verdicts, report.provides) if told["status"] == "graded" else ()
        grades.append(Grade(name, (profile.id, profile.title), items=items, seconds=n / 10, **told))
    return overview_html(grades, profile)


@pytest.fixture(scope="module")
def pages(reports, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    texts = {name: to_html(report) for name, report in reports.items()}
    columns = [(name, report) for name, report in reports.items()] + [("<b>gone</b>", "<i>no such file</i>")]
    texts["table"] = table_html(tabled(columns), columns)
    texts["class"] = a_class_of_200(reports)
    spec = load_spec()
    ledgers = [load_lesson(path, spec) for path in lesson_files()]
    texts["audit"] = audit_html([audit(lesson, lambda _: "passed") for lesson in ledgers])
    texts["notebook"] = f"<!doctype html><title>cell</title><main>{notebook_html(reports['hostile'])}</main>"
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return folder


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["conforming", "broken", "hostile", "table", "class", "audit"])
def test_a_page_opens_without_a_complaint_and_asks_for_nothing(pages, browse, name, width):
    seen = browse(pages / f"{name}.html", width=width)
    assert not seen.console
    assert not seen.requests
    assert seen.found["wide"] == []
    assert seen.found["title"] != "owned"


def test_a_page_that_runs_and_asks_would_be_noticed(tmp_path, browse):
    (tmp_path / "bad.html").write_text(
        "<!doctype html><main><p style='width:3000px'>wide</p><script>document.title = 'owned'; boom()</script>"
        "<img src='http://example.invalid/x.png'></main>"
    )
    seen = browse(tmp_path / "bad.html")
    assert seen.found["title"] == "owned"
    assert seen.found["wide"]
    assert any("boom" in line for line in seen.console)
    assert any("example.invalid" in url for url in seen.requests)


def test_the_policy_stops_what_is_not_escaped(tmp_path, browse):
    text = page("table.html", script=True, **dict.fromkeys(("candidates", "totals"), ()),
                roles={}, legend="", failures={}, marks={}, clean=str, versions=str, labelled=str)  # fmt: skip
    evil = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"
    (tmp_path / "evil.html").write_text(text.replace("</main>", f"{evil}</main>"))
    seen = browse(tmp_path / "evil.html")
    assert seen.found["title"] == "Conformance of 0 candidates"
    assert any("Content Security Policy" in line for line in seen.console)


def test_a_hostile_report_has_no_element_and_no_link_of_the_candidate(pages, browse):
    ask = """{scripts: d.scripts.length, images: d.images.length, frames: w.frames.length,
              links: [...d.links].map(a => a.getAttribute("href")).filter(h => !h.startsWith("#failure-")),
              handlers: [...d.querySelectorAll("*")].filter(
                e => [...e.attributes].some(a => /^on/.test(a.name))).length,
              text: d.body.textContent.includes("<script>document.title='owned'</script>")}"""
    found = browse(pages / "hostile.html", ask).found
    assert (found["scripts"], found["images"], found["frames"], found["handlers"]) == (1, 0, 0, 0)
    assert found["links"] == []
    assert found["text"]  # shown, not run


def test_the_filter_hides_and_shows_claims(pages, browse):
    ask = """(() => {
      const rows = () => [...d.querySelectorAll(".claims tbody tr")].filter(r => r.getClientRects().length).length;
      const all = rows(), search = d.querySelector("input[type=search]");
      search.value = "causal-mask.five"; search.dispatchEvent(new Event("input", {bubbles: true}));
      const one = rows();
      search.value = ""; const failed = d.querySelector("input[value=passed]");
      failed.checked = false; search.dispatchEvent(new Event("input", {bubbles: true}));
      return {all, one, rest: rows(), counted: d.querySelector("output").textContent};
    })()"""
    found = browse(pages / "broken.html", ask).found
    assert found["one"] == 1
    assert 1 < found["rest"] < found["all"]
    assert found["counted"] == f"{found['rest']} of {found['all']}"


def test_one_click_leads_to_the_students_of_a_claim_and_one_more_to_a_student(pages, browse):
    ask = """(() => {
      const shown = () => [...d.querySelectorAll("tr[data-tags]")].filter(r => r.getClientRects().length);
      const all = shown().length, button = d.querySelector("button[data-search]");
      button.click();
      const some = shown();
      return {all, some: some.length, count: button.closest("tr").textContent,
              links: some.map(r => r.querySelector("a").getAttribute("href"))};
    })()"""
    found = browse(pages / "class.html", ask).found
    assert found["all"] == 200
    assert 0 < found["some"] < 200
    assert re.search(rf"\b{found['some']} of \d+", found["count"])
    assert all(re.fullmatch(r"submissions/[^?#&<>]+/feedback\.html", link) for link in found["links"])


def test_headings_are_in_order_and_every_drawing_has_words(pages, browse):
    ask = """{levels: [...d.querySelectorAll("h1,h2,h3,h4")].map(h => +h.tagName[1]),
              drawings: d.querySelectorAll("svg").length,
              titles: [...d.querySelectorAll("svg[role=img] > title")].map(t => t.textContent),
              scopes: [...d.querySelectorAll("th")].filter(t => !t.scope).length}"""
    found = browse(pages / "broken.html", ask).found
    levels = found["levels"]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert found["drawings"] == len(found["titles"]) > 6
    assert any("wrong: (0, 1)" in title for title in found["titles"])
    assert found["scopes"] == 0


def test_every_failure_has_a_link_that_leads_to_it(pages, browse):
    ask = """{links: [...d.links].map(a => a.getAttribute("href")), broken: [...d.links].filter(
              a => !d.getElementById(a.getAttribute("href").slice(1))).length}"""
    for name in ("broken", "table"):
        found = browse(pages / f"{name}.html", ask).found
        assert len(found["links"]) >= 6
        assert found["broken"] == 0


def test_a_notebook_shows_the_page_in_a_frame_that_runs_nothing(pages, reports, browse):
    seen = browse(
        pages / "notebook.html", "{frames: w.frames.length, sandbox: d.querySelector('iframe').sandbox.value}"
    )
    assert seen.found["frames"] == 1
    assert seen.found["sandbox"] == ""
    assert not seen.requests
    assert reports["broken"]._repr_html_().startswith("<iframe sandbox")


def test_a_page_is_small(pages, reports):
    assert all(len((pages / f"{name}.html").read_bytes()) < 300_000 for name in reports)


def test_a_page_says_the_verdict_the_binding_and_the_source_without_a_browser(reports):
    text = re.sub(r"\s+", " ", to_html(reports["broken"]))
    assert "does not conform: 6 claims broken" in text
    assert re.search(r"broken\.py, line 10\b", text)
    assert "by its author&#39;s words" in text
    assert "notes-decoder: Practice question 1" in text
    assert "Block from the first diagonal above the main one" in text

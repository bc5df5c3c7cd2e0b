"""Files for other tools: the schema, CSV, GitHub's annotations, JUnit XML, and what a terminal gets."""

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy
import pytest
from triu.conformance import check
from triu.conformance.candidates.subject import place_of
from triu.conformance.candidates.target import Declarations, Target, version_of
from triu.reports import from_json, to_json
from triu.reports.github import annotations
from triu.reports.json_report import SCHEMA, finite
from triu.reports.spreadsheet import report_csv
from triu.spec import OUTCOMES, Report

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
BROKEN = HERE / "pages" / "broken.py"


def triu(*arguments, stderr_to_stdout=False, **options):
    command = [sys.executable, "-m", "triu.conformance", *map(str, arguments)]
    error = subprocess.STDOUT if stderr_to_stdout else subprocess.PIPE
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=error, text=True, **options)


@pytest.fixture(scope="module")
def broken():
    return check(BROKEN)


@pytest.fixture(scope="module")
def hostile():
    return check(HERE / "pages" / "hostile.py")


# JSON and its schema


def test_the_schema_is_one_and_reports_follow_it(broken, hostile):
    schema = json.loads(SCHEMA.read_text("utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    for report in (broken, hostile):
        jsonschema.Draft7Validator(schema).validate(json.loads(to_json(report)))


MUTANTS = ["attention-nan-replaced", "lm-mask-one-late", "positions-base-1000", "generate-eos-ignored"]


@pytest.mark.parametrize("target", [BROKEN, HERE / "pages" / "hostile.py", *(f"mutant:{m}" for m in MUTANTS)])
def test_reading_back_what_was_written_gives_the_same_report(target):
    report = check(target)
    again = from_json(to_json(report))
    assert again == report
    assert to_json(again) == to_json(report)


CHANGES = [
    (lambda d: d["verdicts"][0].pop("source"), r"data\.verdicts\[0\] must contain \['source'\]"),
    (lambda d: d["verdicts"][0].update(verdict="fine"), r"data\.verdicts\[0\]\.verdict must be one of"),
    (lambda d: d["verdicts"][0].update(extra=1), "must not contain"),
    (lambda d: d.update(format=2), "has the format 2, this triu reads 3"),
    (lambda d: d.pop("verdicts"), "no format or no verdicts"),
    (lambda d: d.update(seed="0"), r"data\.seed must be integer"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_what_does_not_follow_the_schema_is_refused_with_the_place(broken, change, message):
    document = json.loads(to_json(broken))
    change(document)
    with pytest.raises(ValueError, match=message):
        from_json(json.dumps(document))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_report_cut_short_is_recognised_as_such(broken, share):
    text = to_json(broken)
    with pytest.raises(ValueError, match="cut short"):
        from_json(text[: int(len(text) * share)])


def test_a_report_against_the_schema_is_not_written(broken):
    wrong = replace(broken, verdicts=(replace(broken.verdicts[0], level="PERHAPS"),))
    with pytest.raises(ValueError, match=r"a fault of triu: data\.verdicts\[0\]\.level"):
        to_json(wrong)


def test_a_report_nested_too_deeply_is_refused():
    with pytest.raises(ValueError):
        from_json("[" * 100_000)


# CSV


def test_csv_has_a_row_for_each_verdict(broken):
    text = report_csv(broken)
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    assert [(row["claim"], row["verdict"]) for row in rows] == [(v.claim, v.verdict) for v in broken.verdicts]
    total = next(row for row in rows if row["claim"] == "causal-mask.total")
    assert "triu(..., diagonal=1)" in total["what to do"]
    assert total["source"] == "notes-decoder: Practice question 1"


def test_no_cell_of_the_csv_is_computed_by_a_spreadsheet(broken):
    evil = replace(broken.verdicts[0], object='=HYPERLINK("http://example.invalid")', reason="\t@SUM(1)")
    row = list(csv.reader(io.StringIO(report_csv(replace(broken, verdicts=(evil,))))))[1]
    assert not [cell for cell in row if re.match(r"\s*[=+@-]", cell)]


# GitHub


def test_annotations_stand_at_the_object_and_say_what_to_do(broken):
    lines = annotations(broken).splitlines()
    assert len(lines) == 6
    mask = next(line for line in lines if "causal-mask.total" in line)
    assert re.match(
        r"::error file=\S*broken\.py,line=10,title=triu causal-mask\.total::build_causal_mask: ", mask
    )
    assert mask.endswith("triu(..., diagonal=1), not 2.")


def test_advice_is_a_warning(broken):
    failed = next(v for v in broken.verdicts if v.verdict == "failed")
    assert annotations(replace(broken, verdicts=(replace(failed, level="SHOULD"),))).startswith("::warning ")


def test_a_candidate_gives_no_command_to_github(hostile):
    failed = next(v for v in hostile.verdicts if v.verdict == "failed")
    evil = "x\n::error::owned\r\n%0A::add-mask::y"
    failed = replace(failed, object=evil, title=evil, failure=replace(failed.failure, what=evil, hint=evil))
    bound = (replace(hostile.binding[0], object=evil, file="a,line=7::\nb", line=3),)
    lines = annotations(replace(hostile, verdicts=(failed,), binding=bound)).splitlines()
    assert len(lines) == 1
    properties, _, told = lines[0].removeprefix("::error ").partition("::")
    assert "file=a%2Cline=7%3A%3A b" in properties
    assert "%250A" in told


def test_what_is_printed_for_github_is_no_command(tmp_path):
    summary = tmp_path / "summary.md"
    done = triu(
        "check",
        HERE / "pages" / "hostile.py",
        "--github",
        env={**os.environ, "GITHUB_STEP_SUMMARY": str(summary)},
    )
    lines = done.stdout.splitlines()
    token = lines[0].removeprefix("::stop-commands::")
    assert re.fullmatch(r"[0-9a-f]{32}", token)
    end = lines.index(f"::{token}::")
    commands = [line for line in lines[end + 1 :] if line.strip().startswith("::")]
    assert len(commands) == len(lines) - end - 1 == 3
    assert all(line.startswith("::error ") for line in commands)
    assert "does not conform" in summary.read_text("utf-8")
    assert "<script>" not in re.sub(r"```.*?```", "", summary.read_text("utf-8"), flags=re.DOTALL)


def test_an_error_at_import_gives_no_command_to_github(tmp_path):
    (tmp_path / "evil.py").write_text(
        'raise ImportError("x\\n::error file=a.py::owned\\n::add-mask::triu")\n'
    )
    done = triu("check", tmp_path / "evil.py", "--github", stderr_to_stdout=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 2
    assert lines[0].startswith("::stop-commands::")
    assert lines[-1] == f"::{lines[0].removeprefix('::stop-commands::')}::"
    assert any("owned" in line for line in lines[1:-1])


def test_another_job_has_another_token():
    done = [triu("check", "baseline", "--claims", "causal-mask.five", "--github").stdout for _ in range(2)]
    assert done[0].splitlines()[0] != done[1].splitlines()[0]


# JUnit


def test_junit_xml_through_pytest_has_every_claim_with_its_verdict(tmp_path):
    spec = tmp_path / "claims.toml"
    spec.write_text((HERE / "data" / "course_claims.toml").read_text("utf-8"), "utf-8")
    out = tmp_path / "junit.xml"
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(spec), "--candidate", str(BROKEN), f"--junitxml={out}"],
        capture_output=True,
        cwd=tmp_path,
    )
    cases = {case.get("name"): case for case in ElementTree.parse(out).getroot().iter("testcase")}
    levels = {claim["id"]: claim["level"] for claim in tomllib.loads(spec.read_text("utf-8"))["claim"]}
    assert cases.keys() == levels.keys()
    for name, case in cases.items():
        verdicts = {p.get("value") for p in case.iter("property")}
        assert verdicts <= set(OUTCOMES)
        broken = levels[name] == "MUST" and bool(verdicts & {"failed", "errored"})
        assert (case.find("failure") is not None) == broken
    assert any(case.find("failure") is not None for case in cases.values())


# Terminal


def in_a_terminal(arguments, **environment):
    """What the command writes to a terminal of 80 columns."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "triu.conformance", *map(str, arguments)],
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, "COLUMNS": "80", "TERM": "xterm", **environment},
    )
    os.close(child)
    parts = []
    while True:
        try:
            part = os.read(parent, 65536)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    process.wait()
    os.close(parent)
    return b"".join(parts).decode("utf-8", "replace")


def test_color_and_progress_only_on_a_terminal_and_no_color_is_heeded():
    shown = in_a_terminal(["check", BROKEN])
    assert "\x1b[31m" in shown
    assert "\x1b[31m" not in in_a_terminal(["check", BROKEN], NO_COLOR="1")
    assert "\x1b[31m" in in_a_terminal(["check", BROKEN], NO_COLOR="")
    piped = triu("check", BROKEN)
    assert "\x1b" not in piped.stdout + piped.stderr
    assert piped.stderr == ""


def test_what_takes_more_than_a_second_has_a_bar_that_leaves_no_trace(monkeypatch):
    from triu.conformance import progress

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.Progress(3, "claims") as bar:
        bar.step()
        assert stream.getvalue() == ""
        now[0] = 1.5
        bar.step()
        bar.step()
    assert "claims" in stream.getvalue()
    assert "2/3" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_no_bar_where_nobody_looks(monkeypatch, capsys):
    from triu.conformance import progress

    monkeypatch.setattr(progress, "AFTER", -1.0)
    with progress.Progress(2, "claims") as bar:
        bar.step()
    assert capsys.readouterr().err == ""


def test_lines_keep_to_the_width_of_the_terminal():
    shown = in_a_terminal(["check", BROKEN], NO_COLOR="1", COLUMNS="60").replace("\r", "\n")
    shown = re.sub(r"\x1b\[\??\w+", "", shown)
    prose = [line for line in shown.split("\n") if not line.startswith(" " * 6)]
    assert max(map(len, prose)) <= 60


def test_files_are_written_even_if_the_reader_of_the_text_has_gone(tmp_path):
    page = tmp_path / "page.html"
    command = f"{sys.executable} -m triu.conformance check {BROKEN} --html {page} | true"
    subprocess.run(["sh", "-c", command], capture_output=True)
    assert page.read_text("utf-8").rstrip().endswith("</html>")


def test_a_file_that_cannot_be_written_is_told_and_the_rest_is_there(tmp_path):
    done = triu(
        "check",
        BROKEN,
        "--claims",
        "causal-mask.*",
        "--html",
        tmp_path / "no" / "x.html",
        "--csv",
        tmp_path / "x.csv",
    )
    assert done.returncode == 2
    assert "x.html: cannot be written: No such file or directory" in done.stderr
    assert "causal-mask.total" in done.stdout
    assert (tmp_path / "x.csv").exists()


def test_a_report_shows_itself_in_a_notebook(broken):
    assert broken._repr_html_().startswith("<iframe")
    assert Report.render_html is not None


def test_a_stored_report_and_a_grade_are_shown_in_another_form(tmp_path, broken):
    (tmp_path / "report.json").write_text(to_json(broken), "utf-8")
    done = triu("show", tmp_path / "report.json", "--html", tmp_path / "page.html")
    assert done.returncode == 0
    assert "causal-mask.total" in done.stdout
    assert "<svg" in (tmp_path / "page.html").read_text("utf-8")
    folder = tmp_path / "submissions"
    folder.mkdir()
    (folder / "ada.py").write_text(BROKEN.read_text("utf-8"), "utf-8")
    (folder / "bob.py").write_text("def (", "utf-8")
    triu("grade", folder, "--profile", "lesson-85", "--out", tmp_path / "out", "--isolation", "process", "-q")
    graded = triu("show", tmp_path / "out" / "submissions" / "ada" / "report.json")
    assert graded.returncode == 0
    assert "causal-mask.total" in graded.stdout
    not_graded = triu("show", tmp_path / "out" / "submissions" / "bob" / "report.json")
    assert not_graded.returncode == 2
    assert "not importable" in not_graded.stderr


# What a stored report, or a candidate, may hold


def test_whatever_a_case_holds_becomes_json():
    values = {
        ("a", 1): [float("nan"), float("-inf"), 10**5000, numpy.float32("nan"), numpy.int64(3)],
        "array": numpy.array([[1.0, float("inf")]]),
        "none": None,
    }
    told = finite(values)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["array"] == [[1.0, "inf"]]
    assert told["('a', 1)"][:2] == ["nan", "-inf"]


@pytest.mark.parametrize("line", [-3, True, None, "12", 10**30])
def test_a_line_that_is_none_is_left_out(line, broken):
    place = place_of({"file": "a.py", "line": line})
    to_json(replace(broken, binding=(replace(broken.binding[0], **{"file": "", "line": 0, **place}),)))


def test_a_folder_with_odd_things_in_it_has_a_version(tmp_path):
    (tmp_path / "ok.py").write_text("def build_causal_mask(T): ...\n")
    (tmp_path / "data.py").mkdir()
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    os.mkfifo(tmp_path / "pipe.py")
    target = Target("x", {"kind": "folder", "path": str(tmp_path)}, "", Declarations())
    before = version_of(target)
    assert re.fullmatch(r"sha256 [0-9a-f]{12}", before)
    (tmp_path / "ok.py").write_text("def build_causal_mask(T): return 1\n")
    assert version_of(target) != before
    assert (
        version_of(replace(target, wire={"kind": "file", "path": str(tmp_path / "not there.py")})) != before
    )


def test_a_tampered_report_ends_in_an_error_and_not_in_a_traceback(tmp_path, broken):
    document = json.loads(to_json(broken))
    failed = next(v for v in document["verdicts"] if v.get("failure") and v["failure"]["picture"])
    failed["failure"]["picture"].update(kind="positions", observed=[[10**400], [1, 2, 3]] * 5)
    failed["claim"] = "x` <img src=x> `y"
    (tmp_path / "t.json").write_text(json.dumps(document))
    done = triu("show", tmp_path / "t.json", "--html", tmp_path / "t.html", "--markdown", tmp_path / "t.md")
    assert "Traceback" not in done.stderr
    assert "`` x` <img src=x> `y ``" in (tmp_path / "t.md").read_text("utf-8")
    (tmp_path / "deep.json").write_text('{"submission": ' + "[" * 100_000)
    done = triu("show", tmp_path / "deep.json")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr

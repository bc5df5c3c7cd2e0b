"""Batches and the commands of a teacher: nothing is lost, nothing is graded twice, whatever dies on the way."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from triu.conformance.cli import main
from triu.conformance.grading import batch
from triu.conformance.grading.confine import ALL_LAYERS
from triu.conformance.grading.submissions import Submission, find_submissions
from triu.reports.grade_json import grade_from_json, grade_to_json
from triu.spec import Grade

PROFILE = """\
title = "A mask"
required = ["causal_mask"]
[[milestone]]
id = "A"
title = "The mask"
[[milestone.item]]
id = "pattern"
title = "The mask hides the future, and nothing else"
claims = ["causal-mask.shape", "causal-mask.pattern"]
points = 10
"""
MASK = "def build_causal_mask(T):\n    return torch.ones(T, T, dtype=torch.bool).triu(1)\n"
GOOD = f"import torch\n\n\n{MASK}"
SLOW = GOOD.replace("    return", "    wait = wait or [time.sleep(2)]\n    return")
SLOW = SLOW.replace("(T):", "(T):\n    global wait").replace("torch\n", "torch\nimport time\nwait = []\n", 1)
SIX = ("ada", "ben", "cy", "slow1", "slow2", "slow3")
FILES = {"report.json", "feedback.md", "feedback.html", "results.json"}
Triu = Callable[..., Result]
Done = subprocess.CompletedProcess[str]
Mixed = tuple[Done, Path]  # what the command said, and its output folder
TRIU = [sys.executable, "-m", "triu.conformance"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A folder with a profile and three good submissions."""
    (tmp_path / "profile.toml").write_text(PROFILE)
    (tmp_path / "in").mkdir()
    for name in ("ada", "ben", "cy"):
        (tmp_path / "in" / f"{name}.py").write_text(GOOD)
    return tmp_path


def command(course: Path, *more: str) -> list[str]:
    request = ["grade", course / "in", "--profile", course / "profile.toml", "--out", course / "out"]
    return [*map(str, request), "--examples", "4", "--workers", "2", *more]


def process(arguments: list[str], cwd: Path | None = None, **more: str) -> Done:
    environment = {**os.environ, **more}
    return subprocess.run(arguments, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)


@pytest.fixture
def triu(monkeypatch: pytest.MonkeyPatch) -> Triu:
    """The command in this process, with a thread in place of a pool: its template serves all tests."""
    monkeypatch.setattr(batch, "local", lambda _: lambda: ThreadPoolExecutor(1))
    return lambda *arguments: CliRunner().invoke(main, [str(a) for a in arguments])


def grades_in(out: Path) -> dict[str, Grade]:
    found = [grade_from_json(path.read_text("utf-8")) for path in out.glob("submissions/*/report.json")]
    return {grade.submission: grade for grade in found}


def rows_in(out: Path) -> dict[str, dict[str, str]]:
    lines = (out / "grades.csv").read_text("utf-8-sig").splitlines()
    return {row["submission"]: row for row in csv.DictReader(lines)}


def scores_in(out: Path) -> dict[str, str]:
    return {name: row["score"] for name, row in rows_in(out).items()}


def order_for(course: Path) -> batch.Order:
    return batch.Order(str(course / "profile.toml"), (), b"secret", 4, "auto")


def run_batch(course: Path, executor: Callable[[], Executor], **more: Any) -> list[Grade]:
    submissions, _ = find_submissions(course / "in")
    return batch.run(submissions, order_for(course), course / "out", executor, **more)


def wait_until(true: Callable[[], object], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def marked(mark: Path) -> list[str]:
    """Processes with TMPDIR set to ``mark``: the command, its pool, its templates and their workers."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"TMPDIR={mark}\0".encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Mixed:
    root = tmp_path_factory.mktemp("mixed")
    folder = root / "in"
    (folder / "pair").mkdir(parents=True)
    (folder / "nothing").mkdir()
    (root / "profile.toml").write_text(PROFILE)
    (folder / "good.py").write_text(GOOD)
    (folder / "Ada Lovelace.py").write_text(GOOD)
    (folder / "broken.py").write_text("def build_causal_mask(T:\n")
    (folder / "notes.txt").write_text("not a submission")
    main_file = MASK.replace("torch.ones(T, T, dtype=torch.bool).triu(1)", "upper(T)")
    (folder / "pair" / "masks.py").write_text(f"from helper import upper\n{main_file}")
    (folder / "pair" / "helper.py").write_text(GOOD.replace("build_causal_mask", "upper"))
    cells = [
        {"cell_type": "code", "metadata": {}, "source": cell, "outputs": [], "execution_count": None}
        for cell in ("import torch", "x = 1", "print(undefined)", MASK)
    ]
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    (folder / "book.ipynb").write_text(json.dumps(book))
    with zipfile.ZipFile(folder / "packed.zip", "w") as archive:
        archive.writestr("hw/mask.py", GOOD)
    return process(TRIU + command(root)), root / "out"


def test_each_submission_gets_its_files_and_a_row(mixed: Mixed) -> None:
    done, out = mixed
    assert done.returncode == 0, done.stderr
    good = ["Ada Lovelace", "book", "good", "packed", "pair"]
    names = [*good, "broken", "nothing"]
    assert {path.name for path in (out / "submissions").iterdir()} == set(names)
    for name in names:
        assert {path.name for path in (out / "submissions" / name).iterdir()} == FILES
    rows = rows_in(out)
    assert {name: (row["score"], row["A"], row["status"]) for name, row in rows.items()} == {
        **dict.fromkeys(good, ("10", "10", "graded")),
        **dict.fromkeys(("broken", "nothing"), ("", "", "ungradable")),
    }
    assert "SyntaxError" in rows["broken"]["reason"]


def test_summary_and_notes_say_what_came_of_it(mixed: Mixed) -> None:
    done, out = mixed
    assert "5 graded, 2 ungradable; of 10 points the median is 10.00" in done.stdout
    assert "  broken: not importable: " in done.stdout
    assert "  nothing: empty: " in done.stdout
    assert f"isolation: {', '.join(ALL_LAYERS)}" in done.stdout
    assert "not submissions, left alone: notes.txt" in done.stdout
    assert str(out / "grades.csv") in done.stdout
    assert "7 of 7" in done.stderr
    notes = grades_in(out)["book"].notes
    assert any("cell 3" in note and "NameError" in note for note in notes), notes


def test_nothing_is_graded_twice_without_need(course: Path, triu: Triu) -> None:
    reports, seeds = course / "out" / "submissions", dict[str, int]()

    def graded_anew(*more: str) -> set[str]:
        before = {path: path.stat().st_mtime_ns for path in reports.glob("*/report.json")}
        done = triu(*command(course, *more))
        assert done.exit_code == 0, done.output
        assert scores_in(course / "out") == dict.fromkeys(("ada", "ben", "cy"), "10")
        found = {name: grade.seed for name, grade in grades_in(course / "out").items()}
        assert seeds in ({}, found), "the seed of a submission changed"
        seeds.update(found)
        after = {path: path.stat().st_mtime_ns for path in reports.glob("*/report.json")}
        return {path.parent.name for path, changed in after.items() if before.get(path) != changed}

    assert graded_anew() == {"ada", "ben", "cy"}
    assert len(set(seeds.values())) == 3
    assert graded_anew() == set()
    (course / "in" / "ben.py").write_text(f"# better\n{GOOD}")
    assert graded_anew() == {"ben"}
    report = reports / "cy" / "report.json"
    report.write_bytes(report.read_bytes()[: report.stat().st_size // 2])
    assert graded_anew() == {"cy"}
    (reports / "ada" / "report.json").unlink()
    assert graded_anew() == {"ada"}
    assert graded_anew("--regrade", "--only", "ada") == {"ada"}
    assert graded_anew("--regrade") == {"ada", "ben", "cy"}
    (course / "profile.toml").write_text(PROFILE.replace("A mask", "The mask"))
    assert graded_anew() == {"ada", "ben", "cy"}


def test_only_keeps_the_rows_of_the_others(course: Path, triu: Triu) -> None:
    assert triu(*command(course)).exit_code == 0
    (course / "in" / "ada.py").write_text("def build_causal_mask(T):\n    return None\n")
    (course / "in" / "ben.py").write_text(f"# changed, and not asked for\n{GOOD}")
    (course / "in" / "new.py").write_text(GOOD)
    done = triu(*command(course, "--only", "ada"))
    assert scores_in(course / "out") == {"ada": "0", "ben": "10", "cy": "10"}
    assert "1 other rows are from before a change" in done.output
    assert not (course / "out" / "submissions" / "new").exists()
    (course / "profile.toml").write_text(PROFILE.replace("points = 10", "points = 20"))
    assert triu(*command(course, "--only", "cy")).exit_code == 0
    assert scores_in(course / "out") == {"cy": "20"}, "points of two assignments in one column"


def test_the_output_folder_is_no_submission(course: Path, triu: Triu) -> None:
    for _ in range(2):
        assert triu(*command(course, "--out", str(course / "in" / "out"))).exit_code == 0
    assert set(scores_in(course / "in" / "out")) == {"ada", "ben", "cy"}


def test_killed_in_mid_run_it_goes_on_where_it_was(course: Path) -> None:
    for name in SIX[3:]:
        (course / "in" / f"{name}.py").write_text(SLOW)
    out, mark = course / "out", course / "tmp"
    mark.mkdir()
    environment = {**os.environ, "TMPDIR": str(mark)}
    first = subprocess.Popen(TRIU + command(course), env=environment, stderr=subprocess.DEVNULL)
    wait_until(lambda: list(out.glob("submissions/*/report.json")))
    wait_until(lambda: len(marked(mark)) >= 5)  # the command, two processes and their templates
    first.kill()  # that one alone, as the kernel does when memory is short
    first.wait()
    before = {name: grade.seconds for name, grade in grades_in(out).items()}
    assert 0 < len(before) < 6
    wait_until(lambda: not marked(mark))
    second = process(TRIU + command(course), TMPDIR=str(mark))
    assert second.returncode == 0, second.stderr
    assert scores_in(out) == dict.fromkeys(SIX, "10")
    assert before.items() <= {name: grade.seconds for name, grade in grades_in(out).items()}.items()
    assert not list(out.rglob("*.part"))
    wait_until(lambda: not marked(mark))


def test_a_pool_process_that_is_killed_stops_nothing(course: Path) -> None:
    (course / "in" / "slow.py").write_text(SLOW)
    killed: list[int | None] = []

    def kill_one(found: Grade, known: bool) -> None:
        if not killed:
            child = multiprocessing.active_children()[-1]
            child.kill()
            killed.append(child.pid)

    grades = run_batch(course, batch.local(2), on_grade=kill_one)
    assert [(g.submission, g.score) for g in grades] == [(n, 10) for n in ("ada", "ben", "cy", "slow")]


def test_a_pool_that_breaks_when_it_is_given_work_loses_nothing(course: Path) -> None:
    breaks = iter([False, True])

    class Breaking(ThreadPoolExecutor):
        def submit(self, fn, /, *args, **kwargs):
            if next(breaks, False):
                raise BrokenExecutor("a process of the pool is gone")
            return super().submit(fn, *args, **kwargs)

    grades = run_batch(course, lambda: Breaking(1))
    assert [(g.submission, g.score) for g in grades] == [("ada", 10), ("ben", 10), ("cy", 10)]


def test_what_takes_its_grader_with_it_each_time_is_no_ones_loss(
    course: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        (course / "in" / f"more{number}.py").write_text(GOOD)
    busy, at_once = list[str](), list[int]()

    def task(order: batch.Order, submission: Submission, sent: object) -> str:
        if submission.name == "ada":
            raise RuntimeError("the machine is gone")
        busy.append(submission.name)
        at_once.append(len(busy))
        time.sleep(0.1)
        busy.remove(submission.name)
        return grade_to_json(Grade(submission.name, ("p", "P"), "graded"))

    monkeypatch.setattr(batch, "_task", task)
    grades = run_batch(course, lambda: ThreadPoolExecutor(2), limit=2)
    assert [g.word for g in grades] == ["grader", *[""] * 6]
    assert "the machine is gone" in grades[0].reason
    assert max(at_once[2:]) == 2, "after one loss they go one at a time"
    for submission in find_submissions(course / "in")[0]:  # the next run tries that one again
        found = batch.stored(course / "out", submission, order_for(course))
        assert (found is None) == (submission.name == "ada")


def test_a_scheduler_that_is_lost_is_not_waited_for(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Executor):
        def submit(self, fn, /, *args, **kwargs):
            return Future()

    def check() -> None:
        if next(calls) > 1:
            raise batch.BatchError("it was lost")

    calls = itertools.count()
    monkeypatch.setattr(batch, "CHECK_SECONDS", 0.01)
    with pytest.raises(batch.BatchError, match="it was lost"):
        run_batch(course, Silent, check=check)


def test_an_order_takes_its_files_along(course: Path) -> None:
    order = order_for(course).packed()
    (course / "profile.toml").unlink()
    profile, _ = batch.the_profile(order)
    assert (profile.id, profile.points) == ("profile", 10)


def test_required_isolation_refuses_where_a_layer_is_missing(course: Path) -> None:
    (course / "py_landlock.py").write_text("raise ImportError\n")
    request = TRIU + command(course, "--isolation", "required", "--workers", "1")
    done = process(request, PYTHONPATH=str(course))
    assert done.returncode == 2
    assert done.stderr == "triu: isolation is required, and this machine has no landlock\n"
    assert not grades_in(course / "out")


def test_how_a_submission_was_isolated_is_told(course: Path, triu: Triu) -> None:
    required = triu(*command(course, "--isolation", "required", "--only", "ada"))
    assert (required.exit_code, grades_in(course / "out")["ada"].layers) == (0, ALL_LAYERS)
    done = triu(*command(course, "--isolation", "process", "--only", "ada"))
    assert "isolation: process only" in done.output
    assert grades_in(course / "out")["ada"].layers == ("process only",)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ("in --profile homework", "homework: no such file or shipped assignment"),
        ("in --secret ABSENT", "ABSENT: cannot be read: No such file or directory; name a file"),
        ("in --secret in", "in: cannot be read: Is a directory; name a file"),
        ("in --secret EMPTY", "EMPTY: is empty; expected a secret of some length"),
        ("in --out EMPTY", "EMPTY: no such folder can be made: File exists; choose another --out"),
        ("in --out EMPTY/out", "EMPTY/out: no such folder can be made: Not a directory; choose"),
        ("in --only eve", "in: no submission is called eve; there are ada, ben, cy"),
        ("in --spec ABSENT", "ABSENT: "),
        ("in --scheduler nowhere://x", "nowhere://x: no Dask scheduler answers there"),
        ("absent", "absent: cannot be read (No such file or directory); expected a folder"),
        ("none", "none: holds no submission; expected .py, .ipynb or .zip files, or folders"),
        ("none --only eve", "none: holds no submission"),
    ],
)
def test_a_request_that_cannot_be_met(
    request_: str, says: str, course: Path, triu: Triu, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "--scheduler" in request_:
        pytest.importorskip("distributed")
    monkeypatch.chdir(course)
    (course / "EMPTY").touch()
    (course / "none").mkdir()
    kept = course / "out" / "submissions" / "ada" / "report.json"
    kept.parent.mkdir(parents=True)
    kept.write_text("a grade of last year")
    done = triu("grade", "--profile", "profile.toml", "--out", "out", *request_.split())
    assert done.exit_code == 2, done.output
    assert f"triu: {says}" in done.output
    assert kept.read_text() == "a grade of last year"


def test_init_writes_a_starter_once(course: Path, triu: Triu) -> None:
    request = ("init", "--profile", course / "profile.toml", course / "start")
    done = triu(*request)
    written = {str(path): path.read_text() for path in (course / "start").iterdir()}
    assert (done.exit_code, set(done.output.split())) == (0, set(written))
    assert any("causal_mask" in text for text in written.values())
    for path in written:
        Path(path).write_text("my solution")
    again = triu(*request)
    assert (again.exit_code, "already; nothing was written" in again.output) == (2, True)
    assert {path.read_text() for path in (course / "start").iterdir()} == {"my solution"}


def test_profile_check_shows_an_assignment_or_what_is_wrong_with_it(course: Path, triu: Triu) -> None:
    path = course / "profile.toml"
    assert "A mask: 10 points, 2 claims" in triu("profile", "check", path).output
    path.write_text(PROFILE.replace("causal-mask.shape", "causal-mask.shap"))
    done = triu("profile", "check", path)
    assert done.exit_code == 2
    assert "'causal-mask.shap' matches no claim; did you mean causal-mask.shape?" in done.output


def test_the_autograder_runs_by_itself(course: Path, triu: Triu) -> None:
    """As on Gradescope, but that setup.sh, which installs requirements.txt, is not run."""
    archive, root = course / "autograder.zip", course / "autograder"
    assert triu("gradescope", "--profile", course / "profile.toml", "-o", archive).exit_code == 0
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(root / "source")
        assert all(packed.getinfo(f).external_attr >> 16 & 0o111 for f in ("setup.sh", "run_autograder"))
    assert "torch" in (root / "source" / "requirements.txt").read_text()
    package = root / "source" / "lib" / "triu" / "conformance" / "__init__.py"
    package.write_text(f"{package.read_text()}\nprint('run from', __file__)\n")
    elsewhere = course / "elsewhere"  # where Python must import nothing from
    elsewhere.mkdir()
    for name in ("triu", "torch", "click"):
        (elsewhere / f"{name}.py").write_text("raise SystemExit('imported from the working directory')\n")

    def results(submission: str) -> dict:
        shutil.rmtree(root / "submission", ignore_errors=True)
        (root / "submission").mkdir()
        (root / "submission" / "hw.py").write_text(submission)
        script, here = str(root / "source" / "run_autograder"), str(root)
        done = process(["bash", script], elsewhere, AUTOGRADER_ROOT=here, TRIU_VENV=sys.prefix)
        assert done.returncode == 0, done.stderr
        assert f"run from {package}" in done.stdout
        return json.loads((root / "results" / "results.json").read_text("utf-8"))

    good = results(GOOD)
    assert [(t["score"], t["max_score"], t["status"]) for t in good["tests"]] == [(10, 10, "passed")]
    assert good["tests"][0]["name"] == "The mask hides the future, and nothing else"
    broken = results("import no_such_library\n")
    assert [(t["status"], "score" in t) for t in broken["tests"]] == [("failed", False)]
    assert "no_such_library" in broken["tests"][0]["output"]


def test_a_cluster_that_loses_a_worker_loses_no_grade(course: Path) -> None:
    distributed = pytest.importorskip("distributed")
    for name in SIX[3:]:
        (course / "in" / f"{name}.py").write_text(SLOW)
    out = course / "out"
    with distributed.LocalCluster(
        processes=True, n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0
    ) as cluster:
        request = TRIU + command(course, "--scheduler", cluster.scheduler_address)
        run = subprocess.Popen(request, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            wait_until(lambda: list(out.glob("submissions/*/report.json")) or run.poll() is not None)
            os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
            printed = run.communicate(timeout=300)
        finally:
            run.kill()
    assert run.returncode == 0, printed
    assert scores_in(out) == dict.fromkeys(SIX, "10")
    assert {grade.word for grade in grades_in(out).values()} == {""}

"""Batches and the commands of a teacher: nothing is lost, nothing is graded twice, whatever dies on the way."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner, Result
from triu.conformance.cli import main
from triu.conformance.grading import batch
from triu.conformance.grading.confine import ALL_LAYERS
from triu.conformance.grading.profile import load_profile
from triu.conformance.grading.submissions import find_submissions
from triu.reports.grade_json import grade_from_json, grade_to_json
from triu.spec import Grade, load_spec

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
SLOW = """\
import time

import torch

waited = []


def build_causal_mask(T):
    if not waited:
        waited.append(True)
        time.sleep(2)
    return torch.ones(T, T, dtype=torch.bool).triu(1)
"""
FILES = {"report.json", "feedback.md", "feedback.html", "results.json"}
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
    return [
        *("grade", str(course / "in"), "--profile", str(course / "profile.toml")),
        *("--out", str(course / "out"), "--examples", "4", "--workers", "2", *more),
    ]


@pytest.fixture
def triu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command in this process, with a thread in place of a pool: its template serves all tests."""
    monkeypatch.setattr(batch, "local", lambda _: lambda: ThreadPoolExecutor(1))
    return lambda *arguments: CliRunner().invoke(main, [str(a) for a in arguments])


def grades_in(out: Path) -> dict[str, Grade]:
    return {
        path.parent.name: grade_from_json(path.read_text("utf-8"))
        for path in out.glob("submissions/*/report.json")
    }


def rows_in(out: Path) -> dict[str, dict[str, str]]:
    with (out / "grades.csv").open(encoding="utf-8-sig", newline="") as stream:
        return {row["submission"]: row for row in csv.DictReader(stream)}


def scores_in(out: Path) -> dict[str, str]:
    return {name: row["score"] for name, row in rows_in(out).items()}


def order_for(course: Path) -> batch.Order:
    return batch.Order(str(course / "profile.toml"), (), b"secret", 4, "auto")


def wait_until(true: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def marked(mark: str) -> list[psutil.Process]:
    """Living processes with TMPDIR set to ``mark``: the command, its pool, its templates and their workers."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


# one folder of everything that is handed in


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    root = tmp_path_factory.mktemp("mixed")
    folder = root / "in"
    (folder / "pair").mkdir(parents=True)
    (folder / "nothing").mkdir()
    (root / "profile.toml").write_text(PROFILE)
    (folder / "good.py").write_text(GOOD)
    (folder / "Ada Lovelace.py").write_text(GOOD)
    (folder / "broken.py").write_text("def build_causal_mask(T:\n")
    (folder / "notes.txt").write_text("not a submission")
    (folder / "pair" / "masks.py").write_text(
        "from helper import upper\n\n\ndef build_causal_mask(T):\n    return upper(T)\n"
    )
    (folder / "pair" / "helper.py").write_text(GOOD.replace("build_causal_mask", "upper"))
    cells = ["import torch", "x = 1", "print(undefined)", MASK]
    made = [
        {"cell_type": "code", "metadata": {}, "source": cell, "outputs": [], "execution_count": None}
        for cell in cells
    ]
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": made}
    (folder / "book.ipynb").write_text(json.dumps(book))
    with zipfile.ZipFile(folder / "packed.zip", "w") as archive:
        archive.writestr("hw/mask.py", GOOD)
    done = subprocess.run([*TRIU, *command(root)], capture_output=True, text=True, timeout=120)
    return done, root / "out"


def test_each_submission_gets_its_files_and_a_row(
    mixed: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
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


def test_the_summary_says_what_came_of_it(mixed: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, out = mixed
    assert "5 graded, 2 ungradable; of 10 points the median is 10.00" in done.stdout
    assert "  broken: not importable: " in done.stdout
    assert "  nothing: empty: " in done.stdout
    assert f"isolation: {', '.join(ALL_LAYERS)}" in done.stdout
    assert "not submissions, left alone: notes.txt" in done.stdout
    assert str(out / "grades.csv") in done.stdout
    assert "7 of 7" in done.stderr


def test_a_cell_that_fails_does_not_cost_the_cells_after_it(
    mixed: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    book = grades_in(mixed[1])["book"]
    assert book.score == 10
    assert any("cell 3" in note and "NameError" in note for note in book.notes), book.notes


# what is there already


def test_nothing_is_graded_twice_without_need(course: Path, triu: Callable[..., Result]) -> None:
    reports = course / "out" / "submissions"
    seeds: dict[str, int] = {}

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


def test_only_keeps_the_rows_of_the_others(course: Path, triu: Callable[..., Result]) -> None:
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


def test_the_output_folder_is_no_submission(course: Path, triu: Callable[..., Result]) -> None:
    request = ["grade", course / "in", "--profile", course / "profile.toml", "--out", course / "in" / "out"]
    for _ in range(2):
        assert triu(*request, "--examples", 4).exit_code == 0
    assert set(scores_in(course / "in" / "out")) == {"ada", "ben", "cy"}


# what dies on the way


def test_killed_in_mid_run_it_goes_on_where_it_was(course: Path) -> None:
    for name in ("slow1", "slow2", "slow3"):
        (course / "in" / f"{name}.py").write_text(SLOW)
    out, mark = course / "out", course / "tmp"
    mark.mkdir()
    run = [*TRIU, *command(course)]
    environment = {**os.environ, "TMPDIR": str(mark)}
    first = subprocess.Popen(run, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
    wait_until(lambda: list(out.glob("submissions/*/report.json")))
    pool = psutil.Process(first.pid).children(recursive=True)
    assert len(pool) >= 4, "two processes and their templates"
    first.kill()  # that one alone, as the kernel does when memory is short
    first.wait()
    before = {name: grade.seconds for name, grade in grades_in(out).items()}
    assert 0 < len(before) < 6
    wait_until(lambda: not marked(str(mark)), 20)
    second = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=120)
    assert second.returncode == 0, second.stderr
    assert scores_in(out) == dict.fromkeys(("ada", "ben", "cy", "slow1", "slow2", "slow3"), "10")
    assert before.items() <= {name: grade.seconds for name, grade in grades_in(out).items()}.items()
    assert not list(out.rglob("*.part"))
    wait_until(lambda: not marked(str(mark)), 20)


def test_a_pool_process_that_is_killed_stops_nothing(course: Path) -> None:
    (course / "in" / "slow.py").write_text(SLOW)
    submissions, _ = find_submissions(course / "in")
    killed: list[int] = []

    def kill_one() -> None:
        while not killed:
            for child in psutil.Process().children():
                try:
                    if any(grandchild.children() for grandchild in child.children()):
                        killed.append(child.pid)
                        child.kill()
                        return
                except psutil.Error:
                    continue
            time.sleep(0.02)

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    grades = batch.run(submissions, order_for(course), course / "out", batch.local(2))
    assert killed
    assert [(g.submission, g.status, g.score) for g in grades] == [
        (name, "graded", 10) for name in ("ada", "ben", "cy", "slow")
    ]


class _Breaking(Executor):
    """Runs at once what it is given; breaks for good when ``breaks`` says so."""

    def __init__(self, breaks: Callable[[str], bool]) -> None:
        self._breaks = breaks

    def submit(self, fn, /, *args, **kwargs):
        future: Future[str] = Future()
        if self._breaks(args[1].name):
            raise BrokenExecutor("a process of the pool is gone")
        future.set_result(fn(*args, **kwargs))
        return future


def test_a_pool_that_breaks_when_it_is_given_work_loses_nothing(course: Path) -> None:
    submissions, _ = find_submissions(course / "in")
    breaks = iter([False, True])
    grades = batch.run(
        submissions, order_for(course), course / "out", lambda: _Breaking(lambda _: next(breaks, False))
    )
    assert [(g.submission, g.score) for g in grades] == [("ada", 10), ("ben", 10), ("cy", 10)]


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grades out of thin air in place of real ones; the list says how many were made at the same time."""
    now, seen, lock = [0], [], threading.Lock()

    def task(order: batch.Order, submission, sent: object) -> str:
        if submission.name == "ada":
            raise RuntimeError("the machine is gone")
        with lock:
            now[0] += 1
            seen.append(now[0])
        time.sleep(0.2)
        with lock:
            now[0] -= 1
        return grade_to_json(Grade(submission.name, ("p", "P"), "graded"))

    monkeypatch.setattr(batch, "_task", task)
    return seen


def test_what_takes_its_grader_with_it_each_time_is_no_ones_loss(course: Path, instant: list[int]) -> None:
    for number in range(4):
        (course / "in" / f"more{number}.py").write_text(GOOD)
    submissions, _ = find_submissions(course / "in")
    order, out = order_for(course), course / "out"
    grades = batch.run(submissions, order, out, lambda: ThreadPoolExecutor(3), limit=3)
    assert [g.word for g in grades] == ["grader", *[""] * 6]
    assert "the machine is gone" in grades[0].reason
    assert max(instant) > 1, "one loss made the whole batch go one at a time"
    assert batch.stored(out, submissions[0], order) is None, "the next run does not try it again"
    assert batch.stored(out, submissions[1], order) is not None


def test_an_order_takes_its_files_along(course: Path) -> None:
    order = order_for(course).packed()
    (course / "profile.toml").unlink()
    profile, _ = batch.the_profile(order)
    assert (profile.id, profile.points) == ("profile", 10)


# isolation


def test_required_isolation_refuses_where_a_layer_is_missing(course: Path) -> None:
    (course / "stub").mkdir()
    (course / "stub" / "py_landlock.py").write_text("raise ImportError\n")
    done = subprocess.run(
        [*TRIU, *command(course, "--isolation", "required", "--workers", "1")],
        env={**os.environ, "PYTHONPATH": str(course / "stub")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert done.stderr == "triu: isolation is required, and this machine has no landlock\n"
    assert not grades_in(course / "out")


def test_how_a_submission_was_isolated_is_told(course: Path, triu: Callable[..., Result]) -> None:
    required = triu(*command(course, "--isolation", "required", "--only", "ada"))
    assert (required.exit_code, grades_in(course / "out")["ada"].layers) == (0, ALL_LAYERS)
    done = triu(*command(course, "--isolation", "process", "--only", "ada"))
    assert "isolation: process only" in done.output
    assert grades_in(course / "out")["ada"].layers == ("process only",)


# requests that cannot be met


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("--profile", "homework"), "homework: no such file or shipped assignment"),
        (("--secret", "ABSENT"), "ABSENT: cannot be read: No such file or directory; name a file"),
        (("--secret", "in"), "in: cannot be read: Is a directory; name a file"),
        (("--secret", "EMPTY"), "EMPTY: is empty; expected a secret of some length"),
        (("--out", "EMPTY"), "EMPTY: no such folder can be made: File exists; choose another --out"),
        (("--out", "EMPTY/out"), "EMPTY/out: no such folder can be made: Not a directory; choose"),
        (("--only", "eve"), "in: no submission is called eve; there are ada, ben, cy"),
        (("--spec", "EMPTY"), "EMPTY"),
        (("--scheduler", "nowhere://x"), "nowhere://x: no Dask scheduler answers there"),
    ],
)
def test_a_request_that_cannot_be_met(
    change: tuple[str, str],
    says: str,
    course: Path,
    triu: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if change[0] == "--scheduler":
        pytest.importorskip("distributed")
    monkeypatch.chdir(course)
    (course / "EMPTY").touch()
    kept = course / "out" / "submissions" / "ada" / "report.json"
    kept.parent.mkdir(parents=True)
    kept.write_text("a grade of last year")
    request = ["grade", "in", "--profile", "profile.toml", "--out", "out", *change]
    done = triu(*request)
    assert done.exit_code == 2, done.output
    assert f"triu: {says}" in done.output
    assert "Traceback" not in done.output
    assert kept.read_text() == "a grade of last year"


@pytest.mark.parametrize(
    ("folder", "says"),
    [("absent", "absent: cannot be read (No such file"), ("none", "none: holds no submission; expected .py")],
)
def test_a_folder_without_submissions(
    folder: str, says: str, course: Path, triu: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(course)
    (course / "none").mkdir()
    for only in ([], ["--only", "eve"]):
        done = triu("grade", folder, "--profile", "profile.toml", "--out", "out", *only)
        assert (done.exit_code, f"triu: {says}" in done.output) == (2, True), done.output
    assert not (course / "out").exists()


# the other commands


def test_init_writes_a_starter_once(course: Path, triu: Callable[..., Result]) -> None:
    request = ("init", "--profile", course / "profile.toml", course / "start")
    done = triu(*request)
    written = {str(path): path.read_text() for path in (course / "start").iterdir()}
    assert (done.exit_code, set(done.output.split())) == (0, set(written))
    assert any("causal_mask" in text for text in written.values())
    for path in written:
        Path(path).write_text("my solution")
    again = triu(*request)
    assert again.exit_code == 2
    assert "already; nothing was written" in again.output
    assert {path.read_text() for path in (course / "start").iterdir()} == {"my solution"}


def test_profile_check_shows_an_assignment_or_what_is_wrong_with_it(
    course: Path, triu: Callable[..., Result]
) -> None:
    path = course / "profile.toml"
    assert "A mask: 10 points, 2 claims" in triu("profile", "check", path).output
    path.write_text(PROFILE.replace("causal-mask.shape", "causal-mask.shap"))
    done = triu("profile", "check", path)
    assert done.exit_code == 2
    assert "'causal-mask.shap' matches no claim; did you mean causal-mask.shape?" in done.output


def test_the_autograder_runs_by_itself(course: Path, triu: Callable[..., Result]) -> None:
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
        done = subprocess.run(
            ["bash", str(root / "source" / "run_autograder")],
            cwd=elsewhere,
            env={**os.environ, "AUTOGRADER_ROOT": str(root), "TRIU_VENV": sys.prefix},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert f"run from {package}" in done.stdout
        return json.loads((root / "results" / "results.json").read_text("utf-8"))

    good = results(GOOD)
    assert [(t["score"], t["max_score"], t["status"]) for t in good["tests"]] == [(10, 10, "passed")]
    assert good["tests"][0]["name"] == "The mask hides the future, and nothing else"
    assert "score" not in good
    broken = results("import no_such_library\n")
    assert [(t["status"], "score" in t) for t in broken["tests"]] == [("failed", False)]
    assert "no_such_library" in broken["tests"][0]["output"]


def test_a_cluster_that_loses_a_worker_loses_no_grade(course: Path) -> None:
    distributed = pytest.importorskip("distributed")
    for name in ("slow1", "slow2", "slow3"):
        (course / "in" / f"{name}.py").write_text(SLOW)
    out = course / "out"
    with distributed.LocalCluster(
        processes=True, n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0
    ) as cluster:
        run = subprocess.Popen(
            [*TRIU, *command(course, "--scheduler", cluster.scheduler_address)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_until(lambda: list(out.glob("submissions/*/report.json")) or run.poll() is not None)
            os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
            printed = run.communicate(timeout=90)
        finally:
            run.kill()
    assert run.returncode == 0, printed
    profile = load_profile(course / "profile.toml", load_spec())
    assert scores_in(out) == dict.fromkeys(
        ("ada", "ben", "cy", "slow1", "slow2", "slow3"), str(profile.points)
    )
    assert {grade.word for grade in grades_in(out).values()} == {""}

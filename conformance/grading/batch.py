"""Grades a folder of submissions: in several processes, resumable at any moment, one's failure never the others'.

The seam is ``concurrent.futures.Executor``: a pool of processes here, or Dask's executor for more machines.  What
is done is what lies in the output folder: each submission's files are written whole, its report last.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import tempfile
import threading
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from multiprocessing import active_children, connection, get_context, parent_process
from pathlib import Path
from typing import Any

from ...reports.feedback import feedback_html, feedback_markdown
from ...reports.grade_json import grade_from_json, grade_to_json
from ...reports.gradebook import gradebook_csv
from ...reports.gradescope import gradescope_results
from ...reports.overview import broken_alone, overview_html
from ...reports.writing import write_whole
from ...spec import Grade, Profile, Report, Spec, load_spec
from ..candidates.errors import TriuError
from .forked import Template, TemplateError
from .grade import IsolationError, Manner, grade
from .profile import load_profile
from .submissions import Submission

TRIES = 2  # of a submission whose grader was lost
CHECK_SECONDS = 2.0
SECRET_FILE = ".secret"
BARE = Report({}, 0, (), (), {})

OnGrade = Callable[[Grade, bool], None]  # the grade, and whether it was there before


class BatchError(TriuError):
    """The batch cannot be run as asked."""


@dataclass(frozen=True)
class Order:
    """What is asked of a batch; plain data, so that it can be sent to another process or machine."""

    profile: str
    spec_files: tuple[str, ...]
    secret: bytes
    examples: int
    isolation: str
    sent: tuple[tuple[str, bytes | None], ...] = ()  # name and content of the files, for another machine

    @property
    def stamp(self) -> str:
        """Changes with whatever changes a grade, but for the submission."""
        found = hashlib.sha256(repr(replace(self, secret=b"", sent=())).encode() + self.secret)
        found.update(version("triu").encode())
        for file in (Path(self.profile), *map(Path, self.spec_files)):
            if file.is_file():
                found.update(file.read_bytes())
        return found.hexdigest()[:16]

    def packed(self) -> Order:
        """With the files that it names; raises OSError where one cannot be read."""
        paths = [Path(self.profile), *map(Path, self.spec_files)]
        return replace(self, sent=tuple((p.name, p.read_bytes() if p.is_file() else None) for p in paths))

    def unpacked(self, folder: Path) -> Order:
        """With its files written to an empty folder, each to one of its own."""
        names = [self.profile, *self.spec_files]
        for number, (name, content) in enumerate(self.sent):
            if content is not None:
                path = folder / str(number) / name
                path.parent.mkdir()
                path.write_bytes(content)
                names[number] = str(path)
        return replace(self, profile=names[0], spec_files=tuple(names[1:]), sent=())


def read_secret(out: Path, given: Path | None) -> bytes:
    """The secret from a file, or one of its own that the output folder keeps.

    Raises BatchError where a file that is named cannot be read, or is empty.
    """
    if given is None:
        kept = out / SECRET_FILE
        if not kept.exists() or not kept.stat().st_size:
            kept.touch(mode=0o600)
            kept.write_text(secrets.token_hex(32) + "\n")
        given = kept
    try:
        secret = given.read_bytes().strip()
    except OSError as error:
        raise BatchError(
            f"{given}: cannot be read: {error.strerror}; name a file that holds the secret, or leave --secret out"
        ) from None
    if not secret:
        raise BatchError(
            f"{given}: is empty; expected a secret of some length, like the output of `openssl rand -hex 32`"
        )
    return secret


def run(
    submissions: Sequence[Submission],
    order: Order,
    out: Path,
    executor: Callable[[], Executor],
    *,
    regrade: bool = False,
    remote: bool = False,
    check: Callable[[], None] = lambda: None,
    limit: int = 8,
    on_grade: OnGrade | None = None,
) -> list[Grade]:
    """Grade all submissions that have no grade yet; returns the grades of all, in their order, without details.

    Args:
        executor: makes one; called again if one should break.
        remote: its processes do not see this machine's files, so what they need is sent.
        check: called now and then; raises BatchError if no more grades will come.
        limit: how many submissions are handed out at a time.

    Raises:
        TriuError: nothing can be graded; no submission is at fault.
        OSError: a grade cannot be stored.
    """
    grades: dict[str, Grade] = {}
    waiting = []
    for submission in submissions:
        known = None if regrade else stored(out, submission, order)
        if known is None:
            waiting.append(submission)
        else:
            grades[submission.name] = slim(known)
            if on_grade is not None:
                on_grade(known, True)
    asked = order.packed() if remote else order
    for submission, found in _graded(waiting, asked, executor, remote, check, limit):
        store(out, submission, found, order)
        grades[submission.name] = slim(found)
        if on_grade is not None:
            on_grade(found, False)
    return [grades[submission.name] for submission in submissions]


def slim(found: Grade) -> Grade:
    """Without what only its report needs: a class of them is kept in memory.

    Of the report stay the broken verdicts, as bare as the overview needs them.  They, the items and the milestones
    are shared with the grades before.
    """
    report = found.report and replace(BARE, verdicts=broken_alone(found.report.verdicts))
    items = tuple(replace(scored, item=_first(scored.item), verdicts=()) for scored in found.items)
    return replace(found, report=report, output="", items=items, milestones=_first(found.milestones))


@lru_cache(maxsize=4096)
def _first(value: Any) -> Any:
    """Of equal values the one that came first."""
    return value


def _graded(
    submissions: Sequence[Submission],
    order: Order,
    executor: Callable[[], Executor],
    remote: bool,
    check: Callable[[], None],
    limit: int,
) -> Iterator[tuple[Submission, Grade]]:
    """Grades as they come.  A process that dies takes its pool with it: what ran in it is tried again, alone."""
    left = list(reversed(submissions))
    lost: dict[str, int] = {}
    while left:
        running: dict[Future[str], Submission] = {}
        pool = executor()
        try:
            while left or running:
                check()
                while left and len(running) < limit:
                    submission = left[-1]
                    if running and any(s.name in lost for s in (submission, *running.values())):
                        break
                    sent = _packed(submission) if remote else None
                    running[pool.submit(_task, order, submission, sent)] = submission
                    left.pop()
                done, _ = wait(running, CHECK_SECONDS, FIRST_COMPLETED)
                for future in done:
                    submission = running[future]
                    try:
                        text = future.result()
                    except (BrokenExecutor, TriuError):
                        raise
                    except Exception as error:  # of the executor: the machine that had it is gone
                        check()
                        why = f"{type(error).__name__}: {error}"
                        yield from _again(submission, order, lost, left, why)
                    else:
                        yield submission, grade_from_json(text)
                    del running[future]
        except BrokenExecutor:
            for submission in running.values():
                yield from _again(
                    submission, order, lost, left, "the process that graded it was lost each time"
                )
        finally:
            for future in running:
                future.cancel()
            pool.shutdown(wait=False)


def _again(
    submission: Submission, order: Order, lost: dict[str, int], left: list[Submission], why: str
) -> Iterator[tuple[Submission, Grade]]:
    """Put a submission back whose grader was lost; after some tries that is its grade."""
    lost[submission.name] = lost.get(submission.name, 0) + 1
    if lost[submission.name] > TRIES:
        yield submission, _unlucky(submission, order, why)
    else:
        left.append(submission)


def _unlucky(submission: Submission, order: Order, why: str) -> Grade:
    profile, _ = the_profile(order)
    return Grade(
        submission=submission.name,
        profile=(profile.id, profile.title),
        status="ungradable",
        word="grader",
        reason=why,
        max_score=profile.points,
        milestones=profile.milestones,
    )


_templates: list[Template] = []
_one_at_a_time = threading.Lock()  # a Dask worker may have several threads


def the_profile(order: Order) -> tuple[Profile, Spec]:
    """Profile and spec, once in each process: references and mutants are kept with the spec."""
    return _loaded(order, order.stamp)


@lru_cache(maxsize=4)
def _loaded(order: Order, _: str) -> tuple[Profile, Spec]:
    with tempfile.TemporaryDirectory(prefix="triu-", ignore_cleanup_errors=True) as folder:
        order = order.unpacked(Path(folder))
        spec = load_spec(order.spec_files)
        return load_profile(order.profile, spec), spec


def _task(order: Order, submission: Submission, sent: tuple[str, bytes] | None) -> str:
    """Grade one submission in this process; the grade as JSON."""
    with _one_at_a_time:
        return grade_to_json(_graded_here(order, submission, sent))


def _graded_here(order: Order, submission: Submission, sent: tuple[str, bytes] | None) -> Grade:
    import torch

    torch.set_num_threads(1)
    profile, spec = the_profile(order)
    if not _templates:
        _templates.append(Template())
    manner = Manner(order.secret, order.examples, order.isolation)
    with tempfile.TemporaryDirectory(prefix="triu-", ignore_cleanup_errors=True) as folder:
        if sent is not None:
            submission = _unpacked(submission, sent, Path(folder))
        try:
            return grade(submission, profile, spec, manner, _templates[0])
        except (IsolationError, TemplateError):
            raise
        except Exception as error:  # a fault of triu; nobody else pays for it
            return _unlucky(submission, order, f"a fault of triu itself: {type(error).__name__}: {error}")


def _packed(submission: Submission) -> tuple[str, bytes]:
    """A submission as a file's name and bytes; a folder as a zip, links left out."""
    path = submission.path
    if path.is_file():
        return path.name, path.read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(path.rglob("*")):
            if file.is_file() and not file.is_symlink():
                archive.write(file, str(file.relative_to(path)))
    return f"{path.name}.zip", buffer.getvalue()


def _unpacked(submission: Submission, sent: tuple[str, bytes], folder: Path) -> Submission:
    path = folder / Path(sent[0]).name
    path.write_bytes(sent[1])
    return replace(submission, path=path)


# what lies in the output folder


def stored(out: Path, submission: Submission, order: Order) -> Grade | None:
    """The grade of an earlier run, if submission and order are the same; None if there is none, or half of one."""
    found = _last(out, submission)
    return found if found and _is_current(found, submission, order) and found.word != "grader" else None


def with_earlier(
    grades: Iterable[Grade], out: Path, submissions: Iterable[Submission], order: Order, profile: Profile
) -> tuple[list[Grade], list[str]]:
    """The grades, and the last one of every other submission, if it was for the same items and points.

    Returns:
        These, and the names of those whose submission or order changed since.
    """
    found = {grade.submission: grade for grade in grades}
    outdated: list[str] = []
    for submission in submissions:
        last = None if submission.name in found else _last(out, submission)
        if last is not None and (last.profile[0], last.milestones) == (profile.id, profile.milestones):
            found[submission.name] = slim(last)
            if not _is_current(last, submission, order):
                outdated.append(submission.name)
    return list(found.values()), outdated


def _last(out: Path, submission: Submission) -> Grade | None:
    try:
        return grade_from_json((_folder(out, submission.name) / "report.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _is_current(found: Grade, submission: Submission, order: Order) -> bool:
    return found.extra.get("digest") == submission.digest and found.extra.get("order") == order.stamp


def store(out: Path, submission: Submission, found: Grade, order: Order) -> None:
    """Write a submission's files, the report last: what has a report has everything."""
    folder = _folder(out, submission.name)
    folder.mkdir(parents=True, exist_ok=True)
    found = replace(found, extra={**found.extra, "digest": submission.digest, "order": order.stamp})
    (folder / "report.json").unlink(missing_ok=True)
    write_whole(folder / "feedback.md", feedback_markdown(found))
    write_whole(folder / "feedback.html", feedback_html(found))
    write_whole(folder / "results.json", gradescope_results(found))
    write_whole(folder / "report.json", grade_to_json(found))


def _folder(out: Path, name: str) -> Path:
    return out / "submissions" / name


def write_gradebook(out: Path, grades: Iterable[Grade], profile: Profile) -> Path:
    """The table for the LMS."""
    path = out / "grades.csv"
    write_whole(path, gradebook_csv(grades, profile))
    return path


def write_overview(
    out: Path, grades: Sequence[Grade], profile: Profile, outdated: Collection[str], missing: int
) -> Path:
    """The page for the teacher; see :func:`triu.reports.overview.overview`."""
    path = out / "index.html"
    write_whole(path, overview_html(grades, profile, outdated=outdated, missing=missing))
    return path


def local(workers: int) -> Callable[[], Executor]:
    """A pool of processes on this machine."""
    return lambda: _Pool(workers)


class _Pool(ProcessPoolExecutor):
    """Its processes are killed where nobody waits for them, and leave nothing behind."""

    def __init__(self, workers: int) -> None:
        self._others = active_children()
        self._folder = tempfile.TemporaryDirectory(prefix="triu-", ignore_cleanup_errors=True)
        super().__init__(workers, get_context("spawn"), _begin, (self._folder.name,))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for child in active_children():
            if not wait and child not in self._others:
                child.kill()
        super().shutdown(wait=True, cancel_futures=cancel_futures)
        self._folder.cleanup()


def _begin(folder: str) -> None:
    """In a process of a pool: keep temporary files there, and end when the one that started it has ended."""
    tempfile.tempdir = folder
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def cluster(address: str) -> tuple[Callable[[], Executor], Callable[[], None]]:
    """Dask's executor on a scheduler, and what raises BatchError once that scheduler is lost.

    Raises BatchError where Dask is not installed, or nobody answers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise BatchError("--scheduler needs Dask: pip install 'triu[cluster]'") from None
    try:
        client: Any = Client(address, timeout="10s", set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise BatchError(f"{address}: no Dask scheduler answers there: {error}") from None

    def check() -> None:
        if client.status in ("closing", "closed"):
            raise BatchError(
                f"{address}: the Dask scheduler was lost; start it again, and the same command goes on from there"
            )

    return lambda: client.get_executor(pure=False, retries=TRIES), check

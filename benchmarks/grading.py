"""The figures of grading a class: against a fresh process for each submission, where the time goes, and whether
time and memory stay as they are however many submissions there are.

    python benchmarks/grading.py [--submissions 200] [--sample 20] [--workers 2] [--profile lesson-85] [--long 1000]

The class is made of the examples, the correct variants, and the mutants as files of their own.  Machines are shared
and noisy, so everything is measured in one run and told as a ratio.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
from tabulate import tabulate
from triu.conformance import api
from triu.conformance.candidates.session import Session
from triu.conformance.engine.diagnosis import Doctor
from triu.conformance.grading import batch
from triu.conformance.grading import grade as grading
from triu.conformance.grading.forked import Forked
from triu.conformance.grading.profile import load_profile
from triu.conformance.grading.submissions import Submission, as_submission
from triu.reference.mutants import BASELINE, Mutant, load_mutants
from triu.spec import Grade, load_spec

ROOT = Path(__file__).resolve().parents[1]
CHEAP = str(ROOT / "tests" / "hostile" / "profile.toml")
# Files of the baseline; each needs those before it at most.
ORDER = ("masks", "attention", "layers", "positions", "models", "generation")
# Secrets: other seeds, so that no case is known from before.
FIRST, LAST = b"of the class", b"of the sample"
MB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--submissions", type=int, default=200, help="in the class; 0 to leave it out")
    parser.add_argument("--sample", type=int, default=20, help="of these are graded in fresh processes too")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--profile", default="lesson-85")
    parser.add_argument(
        "--long", type=int, default=1000, help="submissions for a cheap profile; 0 to leave it out"
    )
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if 0 < options.long < 100:
        parser.error(f"--long {options.long}: a tenth of it tells nothing; expected 0, or 100 and more")
    if options.alone:
        batch.run(
            [as_submission(options.alone)],
            order(options.profile, LAST),
            options.out,
            lambda: ThreadPoolExecutor(1),
        )
        return
    with tempfile.TemporaryDirectory(prefix="triu-") as name:
        folder = Path(name)
        if options.submissions:
            show(f"A class, profile {options.profile}", of_a_class(options, folder / "class"))
        if options.long:
            show("A long run, few claims", of_a_long_run(options, folder / "long"))


def show(title: str, rows: Sequence[Sequence[str]]) -> None:
    table = tabulate(rows, ["what", "measured"], tablefmt="github", disable_numparse=True)
    print(f"\n## {title}\n\n{table}", flush=True)


def order(profile: str, secret: bytes) -> batch.Order:
    return batch.Order(profile, (), secret, 24, "auto")


# the class


def write_class(folder: Path, count: int, profile: str) -> list[Submission]:
    """So many different submissions, complete and partial, right and wrong."""
    folder.mkdir(parents=True)
    found = []
    for n, (name, text) in enumerate(islice(texts(profile), count)):
        path = folder / f"{n:04}_{name}.py"
        path.write_text(text, "utf-8")
        found.append(as_submission(path))
    return found


def texts(profile: str) -> Iterator[tuple[str, str]]:
    """Name and text of one file after the other, without end: one written by hand to three mutants."""
    hand = sorted((*(ROOT / "examples").glob("*.py"), *(ROOT / "tests" / "variants").glob("*.py")))
    spec = load_spec()
    roles = {spec.claims[claim].role for claim in load_profile(profile, spec).claims}
    mutants = [m for m in load_mutants().values() if m.file in ORDER and spec.claims[m.claim].role in roles]
    parts = ORDER[: 1 + max(ORDER.index(mutant.file) for mutant in mutants)]
    turn = 0
    while True:
        mark = f"\n# copy {turn}\n"
        if turn % 4 == 0:
            path = hand[turn // 4 * 7 % len(hand)]
            yield path.stem, path.read_text("utf-8") + mark
        else:
            mutant = mutants[turn * 7 % len(mutants)]
            yield mutant.id, one_file(mutant, parts) + mark
        turn += 1


def one_file(mutant: Mutant, parts: Sequence[str]) -> str:
    """Files of the baseline with one bug, as one file."""
    texts = (
        mutant.source() if part == mutant.file else (BASELINE / f"{part}.py").read_text("utf-8")
        for part in parts
    )
    text = re.sub(r"^from (\.\w+|__future__) import .*\n", "", "\n\n".join(texts), flags=re.MULTILINE)
    return "from __future__ import annotations\n\n" + text


# what is measured


class Kept(Executor):
    """A pool that outlives a batch, as a pool that has graded a while already."""

    def __init__(self, pool: Executor) -> None:
        self.pool = pool

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self.pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """The pool goes on; whoever made it ends it."""


@dataclass
class Course:
    """When the grades of a batch came, and what memory the processes held then, in MB."""

    began: float = field(default_factory=time.perf_counter)
    times: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    memory: list[tuple[float, float, float]] = field(default_factory=list)

    def note(self, _: Grade, __: bool) -> None:
        self.times.append(time.perf_counter() - self.began)
        self.processor.append(processor_seconds())
        self.memory.append(memory())

    def rates(self, start: int, stop: int) -> tuple[float, float]:
        """Seconds per submission between two of them, by the clock and of the pool's processors."""
        one, other = (
            (kind[stop - 1] - kind[start]) / (stop - 1 - start) for kind in (self.times, self.processor)
        )
        return one, other


def memory() -> tuple[float, float, float]:
    """MB of this process, of the largest one of the pool, and of the largest template."""
    own = psutil.Process()
    pool = own.children()
    return resident([own]), resident(pool), resident(t for child in pool for t in children(child))


def processor_seconds() -> float:
    """What the processes of the pool have used; the machine's other load makes no difference to it."""
    used = 0.0
    for process in psutil.Process().children():
        with suppress(psutil.Error):
            used += sum(process.cpu_times()[:2])
    return used


def children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.Error:
        return []


def resident(processes: Any) -> float:
    largest = 0.0
    for process in processes:
        with suppress(psutil.Error):
            largest = max(largest, process.memory_info().rss / MB)
    return largest


def run(
    pool: Executor, submissions: Sequence[Submission], profile: str, secret: bytes, out: Path
) -> tuple[Course, list[Grade]]:
    """A batch, and how it went."""
    out.mkdir(parents=True)
    course = Course()
    grades = batch.run(submissions, order(profile, secret), out, lambda: Kept(pool), on_grade=course.note)
    return course, grades


def fresh(submissions: Sequence[Submission], profile: str, workers: int, out: Path) -> float:
    """Seconds for a process for each, so many at a time, that loads everything anew."""

    def one(submission: Submission) -> None:
        own = out / submission.name
        own.mkdir(parents=True)
        command = [sys.executable, __file__, "--alone", submission.path, "--profile", profile, "--out", own]
        subprocess.run(command, check=True)

    began = time.perf_counter()
    with ThreadPoolExecutor(workers) as threads:
        list(threads.map(one, submissions))
    return time.perf_counter() - began


WHOLE, CLAIMS, DIAGNOSIS = "all", "claims", "diagnosis: likely mistakes"
# What it is, and where it is defined; what one of them spends within another is not counted there.
PARTS: tuple[tuple[str, tuple[Any, str]], ...] = (
    ("copying it to a clean folder", (grading, "prepare")),
    ("workers, from fork to ready", (Forked, "start")),
    ("importing and describing it, in each worker", (Session, "open")),
    ("binding", (api, "open_candidate")),
    (CLAIMS, (api.Check, "verdicts")),
    (DIAGNOSIS, (Doctor, "explained")),
    ("calls made again in fresh workers", (grading, "_same_when_fresh")),
    ("the grade as JSON, in the pool", (batch, "grade_to_json")),
    ("the grade from JSON, in the parent", (batch, "grade_from_json")),
    ("feedback and results written, in the parent", (batch, "store")),
)


def where_time_goes(submissions: Sequence[Submission], profile: str, out: Path) -> dict[str, float]:
    """Seconds per submission of each part, and of all, graded one by one in this process after some others."""
    spent: defaultdict[str, float] = defaultdict(float)
    within = [0.0]  # for each part that is under way, the seconds of the parts in it
    asked = order(profile, LAST)

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            within.append(0.0)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                seconds = time.perf_counter() - start
                spent[name] += seconds - within.pop()
                within[-1] += seconds

        return call

    with ExitStack() as stack, ThreadPoolExecutor(1) as thread:
        out.mkdir(parents=True)
        warm = [replace(s, name=f"{s.name}_before") for s in submissions[::3]]
        batch.run(warm, asked, out, lambda: Kept(thread), limit=1)
        for name, (owner, attribute) in PARTS:
            stack.enter_context(mock.patch.object(owner, attribute, timed(name, getattr(owner, attribute))))
        began = time.perf_counter()
        batch.run(submissions, asked, out, lambda: Kept(thread), limit=1)
        spent[WHOLE] = time.perf_counter() - began
    return {name: spent[name] / len(submissions) for name in (WHOLE, *(name for name, _ in PARTS))}


def of_a_class(options: argparse.Namespace, folder: Path) -> list[list[str]]:
    """A class in a new pool; then a sample in the same pool, in fresh processes, and part by part."""
    submissions = write_class(folder / "class", options.submissions, options.profile)
    sample = submissions[:: max(1, len(submissions) // options.sample)][: options.sample]
    count, workers = len(sample), options.workers
    with batch.local(workers)() as pool:
        course, _ = run(pool, submissions, options.profile, FIRST, folder / "out")
        pooled, grades = run(pool, sample, options.profile, LAST, folder / "again")
    anew = fresh(sample, options.profile, workers, folder / "anew") / count
    texts = [
        path.read_text("utf-8") for path in sorted((folder / "anew").glob("*/submissions/*/report.json"))
    ]
    same = [batch.grade_from_json(text).items for text in texts] == [grade.items for grade in grades]
    parts = where_time_goes(sample, options.profile, folder / "parts")
    whole = parts.pop(WHOLE)
    rest = whole - parts[CLAIMS] - parts[DIAGNOSIS]
    parts["everything else"] = whole - sum(parts.values())
    each = pooled.times[-1] / count
    overhead = anew - each * (1 - rest / whole)
    return [
        [
            f"{len(submissions)} submissions, {workers} workers, from start to end",
            f"{course.times[-1]:.1f} s",
        ],
        ["- per submission", f"{course.times[-1] / len(submissions):.2f} s"],
        [f"{count} of them in the same pool, per submission", f"{each:.2f} s"],
        [f"the same {count}, a fresh process for each, {workers} at a time", f"{anew:.2f} s"],
        ["- ratio (at least 5)", f"{anew / each:.2f}×{', MISSED' * (anew < 5 * each)}"],
        ["- ratio of all but claims and diagnosis", f"{overhead / (each * rest / whole):.1f}×"],
        ["- same verdicts in both", "yes" if same else "no, MISSED"],
        ["one after the other in one process, per submission", f"{whole:.2f} s"],
        *([f"- {name}", f"{seconds:.3f} s, {seconds / whole:.1%}"] for name, seconds in parts.items()),
        ["all but claims and diagnosis", f"{rest:.3f} s, {rest / whole:.1%}"],
        *told_memory(course),
    ]


def of_a_long_run(options: argparse.Namespace, folder: Path) -> list[list[str]]:
    """Many submissions, few claims: the time that the next one takes, and memory."""
    submissions = write_class(folder / "class", options.long, CHEAP)
    sample, tenth = submissions[-options.sample :], options.long // 10
    with batch.local(options.workers)() as pool:
        course, _ = run(pool, submissions, CHEAP, FIRST, folder / "out")
        pooled, _ = run(pool, sample, CHEAP, LAST, folder / "again")
    each = pooled.times[-1] / len(sample)
    anew = fresh(sample, CHEAP, options.workers, folder / "anew") / len(sample)
    start = min(50, tenth)
    first, last = course.rates(start, start + tenth), course.rates(options.long - tenth, options.long)
    ratio = last[1] / first[1]
    return [
        [f"{options.long} submissions, {options.workers} workers", f"{course.times[-1]:.1f} s"],
        [
            f"per submission, the {tenth} after the first {start}",
            "{:.3f} s, of processors {:.3f} s".format(*first),
        ],
        [f"per submission, the last {tenth}", "{:.3f} s, of processors {:.3f} s".format(*last)],
        ["- ratio by the clock", f"{last[0] / first[0]:.2f}×"],
        ["- ratio by processors (at most 1.2)", f"{ratio:.2f}×{', MISSED' * (ratio > 1.2)}"],
        [f"a fresh process for each of {len(sample)}, against the pool", f"{anew:.2f} s, {each:.3f} s"],
        ["- ratio (at least 5)", f"{anew / each:.1f}×{', MISSED' * (anew < 5 * each)}"],
        *told_memory(course),
    ]


def told_memory(course: Course) -> list[list[str]]:
    """Memory after a tenth, half and all of a batch."""
    count = len(course.memory)
    places = [max(0, n) for n in (count // 10 - 1, count // 2 - 1, count - 1)]
    names = ("this process", "the largest process of the pool", "the largest template")
    return [
        [f"memory of {name}, after {', '.join(str(n + 1) for n in places)}",
         ", ".join(f"{course.memory[n][which]:.0f}" for n in places) + " MB"]
        for which, name in enumerate(names)
    ]  # fmt: skip


if __name__ == "__main__":
    main()

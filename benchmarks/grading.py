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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
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
ORDER = (
    "masks",
    "attention",
    "layers",
    "positions",
    "models",
    "generation",
)  # each needs those before it at most
FIRST, LAST = b"of the class", b"of the sample"  # secrets: other seeds, so that no case is known from before
MB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--submissions", type=int, default=200, help="in the class")
    parser.add_argument("--sample", type=int, default=20, help="of these are graded in fresh processes too")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--profile", default="lesson-85")
    parser.add_argument("--long", type=int, default=1000, help="submissions for a cheap profile")
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
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
        for title, rows in (
            (f"A class, profile {options.profile}", of_a_class(options, folder / "class")),
            ("A long run, few claims", of_a_long_run(options, folder / "long")),
        ):
            print(f"\n## {title}\n")
            print(tabulate(rows, ["what", "measured"], tablefmt="github", disable_numparse=True), flush=True)


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
    turn = 0
    while True:
        mark = f"\n# copy {turn}\n"
        if turn % 4 == 0:
            path = hand[turn // 4 * 7 % len(hand)]
            yield path.stem, path.read_text("utf-8") + mark
        else:
            mutant = mutants[turn * 7 % len(mutants)]
            yield mutant.id, one_file(mutant) + mark
        turn += 1


def one_file(mutant: Mutant) -> str:
    """A whole decoder with one bug, as one file."""
    parts = (
        mutant.source() if part == mutant.file else (BASELINE / f"{part}.py").read_text("utf-8")
        for part in ORDER
    )
    text = re.sub(r"^from (\.\w+|__future__) import .*\n", "", "\n\n".join(parts), flags=re.MULTILINE)
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
    memory: list[tuple[float, float, float]] = field(default_factory=list)

    def note(self, _: Grade, __: bool) -> None:
        self.times.append(time.perf_counter() - self.began)
        self.memory.append(memory())

    def seconds(self, start: int, stop: int) -> float:
        """Seconds per submission between two of them."""
        return (self.times[stop - 1] - self.times[start]) / (stop - 1 - start)


def memory() -> tuple[float, float, float]:
    """MB of this process, of the largest one of the pool, and of the largest template."""
    own = psutil.Process()
    pool = own.children()
    return resident([own]), resident(pool), resident(t for child in pool for t in children(child))


def children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.Error:
        return []


def resident(processes: Any) -> float:
    largest = 0.0
    for process in processes:
        try:
            largest = max(largest, process.memory_info().rss / MB)
        except psutil.Error:
            continue
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


WHOLE, CLAIMS, DIAGNOSIS = "the whole grade", "claims", "diagnosis: likely mistakes"
# What it is, where it is defined, and whether it comes after the grade.
PARTS: tuple[tuple[str, tuple[Any, str], bool], ...] = (
    ("copying it to a clean folder", (grading, "prepare"), False),
    ("a worker, from fork to ready", (Forked, "start"), False),
    ("importing and describing it, in the worker", (Session, "open"), False),
    (CLAIMS, (api.Check, "verdicts"), False),
    (DIAGNOSIS, (Doctor, "explained"), False),
    (WHOLE, (batch, "grade"), False),
    ("the grade as JSON, in the pool", (batch, "grade_to_json"), True),
    ("the grade from JSON, in the parent", (batch, "grade_from_json"), True),
    ("feedback and results written, in the parent", (batch, "store"), True),
)


def where_time_goes(submissions: Sequence[Submission], profile: str, out: Path) -> dict[str, float]:
    """Seconds per submission of each part, graded one by one in this process after some others."""
    spent: Counter[str] = Counter()
    asked = order(profile, LAST)

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent[name] += time.perf_counter() - start

        return call

    with ExitStack() as stack, ThreadPoolExecutor(1) as thread:
        out.mkdir(parents=True)
        warm = [replace(s, name=f"{s.name}_before") for s in submissions]
        batch.run(warm, asked, out, lambda: Kept(thread))
        for name, (owner, attribute), _ in PARTS:
            stack.enter_context(mock.patch.object(owner, attribute, timed(name, getattr(owner, attribute))))
        batch.run(submissions, asked, out, lambda: Kept(thread))
    return {name: spent[name] / len(submissions) for name, *_ in PARTS}


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
    whole = parts[WHOLE] + sum(parts[name] for name, _, outside in PARTS if outside)
    rest = whole - parts[CLAIMS] - parts[DIAGNOSIS]
    each = pooled.times[-1] / count
    overhead = anew - each * (1 - rest / whole)
    return [
        [
            f"{len(submissions)} submissions, {workers} workers, from start to end",
            f"{course.times[-1]:.1f} s",
        ],
        ["  per submission", f"{course.times[-1] / len(submissions):.2f} s"],
        [f"{count} of them in the same pool, per submission", f"{each:.2f} s"],
        [f"the same {count}, a fresh process for each, {workers} at a time", f"{anew:.2f} s"],
        ["  ratio (at least 5)", f"{anew / each:.2f}×{', MISSED' * (anew < 5 * each)}"],
        ["  ratio of all but claims and diagnosis", f"{overhead / (each * rest / whole):.1f}×"],
        ["  same verdicts in both", "yes" if same else "no, MISSED"],
        ["one submission, alone on the machine's other load", f"{whole:.2f} s"],
        *(
            [f"  {name}", f"{parts[name]:.3f} s, {parts[name] / whole:.1%}"]
            for name, *_ in PARTS
            if name != WHOLE
        ),
        ["  all but claims and diagnosis", f"{rest:.3f} s, {rest / whole:.1%}"],
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
    first, last = course.seconds(start, start + tenth), course.seconds(options.long - tenth, options.long)
    return [
        [f"{options.long} submissions, {options.workers} workers", f"{course.times[-1]:.1f} s"],
        [f"per submission, the {tenth} after the first {start}", f"{first:.3f} s"],
        [f"per submission, the last {tenth}", f"{last:.3f} s"],
        ["  ratio (at most 1.2)", f"{last / first:.2f}×{', MISSED' * (last > 1.2 * first)}"],
        [f"a fresh process for each of {len(sample)}, against the pool", f"{anew:.2f} s, {each:.3f} s"],
        ["  ratio (at least 5)", f"{anew / each:.1f}×{', MISSED' * (anew < 5 * each)}"],
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

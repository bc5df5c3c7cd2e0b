"""The figures of the overview of a class: seconds to make it, its size, and seconds until a browser has loaded it.

    python benchmarks/overview.py [--students 1000] [--profile lesson-85] [--memory] [--keep FILE]

The class is made of two real grades, one of an example with a bug and one of an example that conforms, under other
names and with some of the claims broken, each another choice of them.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import subprocess
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from tabulate import tabulate
from triu.conformance.grading import batch
from triu.conformance.grading.submissions import as_submission
from triu.reports.grade_json import grade_from_json
from triu.reports.overview import overview_html
from triu.spec import Failure, Grade, Likely, Verdict

ROOT = Path(__file__).resolve().parents[1]
BROKEN, GOOD = ROOT / "examples" / "softmax_then_zero.py", ROOT / "examples" / "lesson_submission.py"
FIRST = ("Ada", "Björk", "Chen", "Dalia", "Émile", "Farid", "Grace", "Hà", "Ines", "Jo")
LAST = ("Lovelace", "Guðmundsdóttir", "Wei", "O'Neil", "du Châtelet", "Hopper-Murray", "Nguyễn", "Curie")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Added to a copy of the page, with a policy that lets it run: says when everything was there.
STOPWATCH = "<script>onload = () => document.title = 'loaded in ' + performance.now() + ' ms'</script>"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--students", type=int, default=1000)
    parser.add_argument("--profile", default="lesson-85")
    parser.add_argument("--memory", action="store_true", help="measure what is kept of a grade, too; slower")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep the page")
    options = parser.parse_args()
    order = batch.Order(options.profile, (), b"of the benchmark", 24, "auto")
    profile, _ = batch.the_profile(order)
    with tempfile.TemporaryDirectory(prefix="triu-") as name:
        out = Path(name)
        submissions = [as_submission(BROKEN), as_submission(GOOD)]
        batch.run(submissions, order, out, lambda: ThreadPoolExecutor(1))
        texts = [(out / "submissions" / s.name / "report.json").read_text("utf-8") for s in submissions]
        rows = [["students", str(options.students)]]
        if options.memory:
            rows.append(["kept in memory for each", f"{kept(texts, options.students) / 1024:.1f} KB"])
        grades = list(a_class(texts, options.students))
        began = time.perf_counter()
        page = overview_html(grades, profile)
        rows.append(["seconds to make the page", f"{time.perf_counter() - began:.2f}"])
        rows.append(["size of the page", f"{len(page.encode()) / 1e6:.2f} MB"])
        rows += [[what, f"{seconds:.2f}"] for what, seconds in loaded(page, out)]
        if options.keep:
            options.keep.write_text(page, "utf-8")
    print(tabulate(rows, ["what", "measured"], tablefmt="github", disable_numparse=True))


def a_class(texts: list[str], count: int) -> Iterator[Grade]:
    """Grades as a batch keeps them: some of the claims that passed are broken, each with some known mistake."""
    chance = random.Random(85)
    for n in range(count):
        grade = grade_from_json(texts[n % len(texts)])
        name = f"{chance.choice(FIRST)} {chance.choice(LAST)} #{n}"
        weakness = chance.random() ** 3
        assert grade.report is not None
        verdicts = tuple(
            spoilt(v, chance) if chance.random() < weakness else v for v in grade.report.verdicts
        )
        passed = {v.claim for v in verdicts if v.verdict == "passed"}
        items = []
        for scored in grade.items:
            share = Decimal(sum(c in passed for c in scored.item.claims)) / len(scored.item.claims)
            items.append(replace(scored, score=min(scored.score, round(scored.item.points * share, 2))))
        report = replace(grade.report, verdicts=verdicts)
        seconds = chance.lognormvariate(2, 0.4)
        yield batch.slim(replace(grade, submission=name, items=tuple(items), report=report, seconds=seconds))


def spoilt(verdict: Verdict, chance: random.Random) -> Verdict:
    if verdict.verdict != "passed":
        return verdict
    likely = Likely(f"{verdict.claim}-mistake", f"Against: {verdict.title}", "Do it as it is written.", 9, 9)
    failure = Failure("it does not hold", likely=likely if chance.random() < 0.5 else None)
    return replace(verdict, verdict="failed", failure=failure)


def kept(texts: list[str], count: int) -> float:
    """Bytes for each grade, once what all have in common is there."""
    tracemalloc.start()
    grades = list(a_class(texts, count))
    before = tracemalloc.get_traced_memory()[0]
    more = list(a_class(texts, count))
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert len(grades) == len(more)
    return used / count


def loaded(page: str, folder: Path) -> Iterator[tuple[str, float]]:
    """Seconds until a headless browser has loaded it by its own clock, and from its start to its end."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return
    path = folder / "page.html"
    path.write_text(re.sub(r"<meta http-equiv=[^>]*>", "", page) + STOPWATCH, "utf-8")
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'browser'}",
    ]
    began = time.perf_counter()
    done = subprocess.run([*command, "--dump-dom", path.as_uri()], capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - began
    found = re.search(r"<title>loaded in ([\d.]+) ms", done.stdout)
    if found:
        yield "seconds until it is loaded", float(found[1]) / 1000
    yield "seconds from the browser's start to its end", seconds


if __name__ == "__main__":
    main()

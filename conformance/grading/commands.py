"""The commands of a teacher: ``triu grade``, ``triu profile``, ``triu init``, ``triu gradescope``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from ...spec import Grade, SpecError, load_spec
from ..output import stop
from ..progress import Progress

UNUSABLE, SUITE_FAULT = 2, 3

_profile_option = click.option(
    "--profile", "profile_name", required=True, metavar="ID|FILE",
    help="The assignment: a shipped one (triu profile list) or a TOML file.",
)  # fmt: skip
_spec_option = click.option(
    "--spec", "spec_files", multiple=True, metavar="FILE", help="A TOML file with more claims (repeatable)."
)


@click.command()
@click.argument("submissions", type=click.Path(path_type=Path))
@_profile_option
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="The folder for grades and feedback."
)
@click.option("--workers", type=click.IntRange(1, 256), default=None, help="Processes (default: one a core).")
@click.option("--scheduler", metavar="ADDRESS", help="Grade on the machines of a Dask scheduler.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this submission (repeatable).")
@click.option("--regrade", is_flag=True, help="Grade again what has a grade already.")
@click.option("--single", is_flag=True, help="SUBMISSIONS is one submission, not a folder of them.")
@click.option("--name", metavar="NAME", help="With --single: what the submission is called.")
@click.option(
    "--secret", type=click.Path(path_type=Path), metavar="FILE",
    help="From it each submission's seed is derived (default: one of its own in the output folder).",
)  # fmt: skip
@click.option(
    "--isolation", type=click.Choice(["auto", "required", "process"]), default="auto", show_default=True,
    help="auto: every layer that there is; required: all of them, or nothing; process: a process alone.",
)  # fmt: skip
@click.option("--examples", type=click.IntRange(1, 100000), default=24, show_default=True)
@_spec_option
@click.option("--quiet", "-q", is_flag=True, help="Print the last lines alone.")
def grade(
    submissions: Path,
    profile_name: str,
    out: Path,
    workers: int | None,
    scheduler: str | None,
    only: tuple[str, ...],
    regrade: bool,
    single: bool,
    name: str | None,
    secret: Path | None,
    isolation: str,
    examples: int,
    spec_files: tuple[str, ...],
    quiet: bool,
) -> None:
    """Grade a folder of submissions: .py files, notebooks, zips and folders, one for each student.

    Grades come as they are ready; the same command goes on where it was stopped. Exit status: 0 done,
    2 the request is unusable, 3 the grader failed on a submission.
    """
    from ..candidates.errors import TriuError
    from . import batch
    from .profile import load_profile
    from .submissions import Submission, SubmissionError, as_submission, find_submissions

    found: list[Submission]
    ignored: list[str]
    try:
        spec = load_spec(spec_files)
        profile = load_profile(profile_name, spec)
        if single:
            found, ignored = [as_submission(submissions)], []
            if name is not None:
                if not re.fullmatch(r"\w[\w. -]{0,80}", name):
                    stop(f"--name {name}: expected letters, digits, spaces, dots and hyphens")
                found = [replace(found[0], name=name)]
        else:
            found, ignored = find_submissions(submissions)
            found = [s for s in found if s.path.resolve() != out.resolve()]
        if not found:
            stop(f"{submissions}: holds no submission; expected .py, .ipynb or .zip files, or folders")
        for wanted in only:
            if all(s.name != wanted for s in found):
                stop(
                    f"{submissions}: no submission is called {wanted}; there are {', '.join(s.name for s in found[:8])}"
                )
        chosen = [s for s in found if not only or s.name in only]
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            stop(f"{out}: no such folder can be made: {error.strerror}; choose another --out")
        order = batch.Order(
            profile_name if not Path(profile_name).is_file() else str(Path(profile_name).resolve()),
            tuple(str(Path(f).resolve()) for f in spec_files),
            batch.read_secret(out, secret),
            examples,
            isolation,
        )
        count = workers or os.cpu_count() or 1
        make, check = batch.local(min(count, len(chosen))), lambda: None
        if scheduler:
            make, check = batch.cluster(scheduler)
        with Progress(len(chosen), "graded", quiet=quiet) as progress:
            grades = batch.run(
                chosen, order, out, make,
                regrade=regrade, remote=bool(scheduler), check=check, limit=64 if scheduler else 2 * count,
                on_grade=_teller(progress, len(chosen), quiet),
            )  # fmt: skip
        rows, outdated = batch.with_earlier(grades, out, found, order, profile)
        table = batch.write_gradebook(out, rows, profile)
        page = batch.write_overview(out, rows, profile, outdated, len(found) - len(rows))
    except (TriuError, SpecError, SubmissionError) as error:
        stop(error)
    except OSError as error:
        stop(
            f"{error.filename or out}: {error.strerror or error}; what has a grade keeps it, "
            "and the same command goes on from there"
        )
    click.echo(_summary(grades, ignored, out, table, page), nl=False)
    if outdated:
        click.echo(
            f"{len(outdated)} other rows are from before a change of submission or request; "
            "without --only they are graded again"
        )
    sys.exit(SUITE_FAULT if any(g.word == "grader" for g in grades) else 0)


def _teller(progress: Progress, total: int, quiet: bool) -> Callable[[Grade, bool], None]:
    """What is told of each grade: a step of the bar on a terminal, a line elsewhere, for the log of a long run."""
    count = 0

    def tell(found: Grade, known: bool) -> None:
        nonlocal count
        count += 1
        progress.step()
        if quiet or known or sys.stderr.isatty():
            return
        from ...reports.safe import clean

        told = (
            f"{found.score} of {found.max_score}" if found.status == "graded" else f"ungradable: {found.word}"
        )
        click.echo(f"{count} of {total}  {clean(found.submission)}  {told}", err=True)

    return tell


def _summary(grades: list[Grade], ignored: list[str], out: Path, table: Path, page: Path) -> str:
    """What came of the batch, in a few lines."""
    from statistics import median

    from ...reports.safe import clean

    graded = [g for g in grades if g.status == "graded"]
    lines = [f"{len(graded)} graded, {len(grades) - len(graded)} ungradable"]
    if graded:
        lines[0] += f"; of {graded[0].max_score} points the median is {median(g.score for g in graded)}"
    for found in grades:
        if found.status != "graded":
            lines.append(f"  {clean(found.submission)}: {found.word}: {clean(found.reason, 200)}")
    layers = {", ".join(g.layers) for g in grades if g.layers}
    lines += [f"isolation: {found}" for found in sorted(layers)]
    if ignored:
        lines.append(
            f"not submissions, left alone: {', '.join(map(clean, ignored[:8]))}{' …' * (len(ignored) > 8)}"
        )
    lines.append(f"{page}: the class at a glance")
    lines.append(f"{table}; feedback in {out / 'submissions'}")
    return "\n".join(lines) + "\n"


@click.group()
def profile() -> None:
    """Assignments: list the shipped ones, check one of your own."""


@profile.command("list")
def profile_list() -> None:
    """The assignments that come with triu."""
    from .profile import load_profile, shipped_profiles

    spec = load_spec()
    for name in shipped_profiles():
        found = load_profile(name, spec)
        click.echo(f"{name:16} {found.points:>6} points, {len(found.claims)} claims: {found.title}")


@profile.command("check")
@click.argument("file")
@_spec_option
def profile_check(file: str, spec_files: tuple[str, ...]) -> None:
    """Check an assignment's TOML file, and show what it counts."""
    from ..candidates.errors import TriuError
    from .profile import load_profile

    try:
        found = load_profile(file, load_spec(spec_files))
    except (TriuError, SpecError) as error:
        stop(error)
    click.echo(f"{found.title}: {found.points} points, {len(found.claims)} claims")
    for part in found.milestones:
        click.echo(f"  {part.id}: {part.title}: {part.points} points")
        for item in part.items:
            told = f"{'hidden, ' * item.hidden}{'all or nothing, ' * (not item.partial)}{len(item.claims)} claims"
            click.echo(f"    {item.points:>5}  {item.id}: {item.title} ({told})")


@click.command()
@_profile_option
@click.argument("folder", type=click.Path(path_type=Path))
@_spec_option
def init(profile_name: str, folder: Path, spec_files: tuple[str, ...]) -> None:
    """Write the starter file for students: signatures and shapes, all red."""
    from ..candidates.errors import TriuError
    from .profile import load_profile
    from .starter import starter

    try:
        spec = load_spec(spec_files)
        files = starter(load_profile(profile_name, spec), spec)
    except (TriuError, SpecError) as error:
        stop(error)
    there = [name for name in files if (folder / name).exists()]
    if there:
        stop(f"{folder}: there is a {there[0]} already; nothing was written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, "utf-8")
    except OSError as error:
        stop(f"{folder}: cannot be written: {error.strerror}")
    for name in files:
        click.echo(str(folder / name))


@click.command()
@_profile_option
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("autograder.zip"), show_default=True
)
@_spec_option
def gradescope(profile_name: str, output: Path, spec_files: tuple[str, ...]) -> None:
    """Write an autograder for Gradescope: a zip with setup and run scripts, the assignment, and triu itself."""
    from ..candidates.errors import TriuError
    from .autograder import write_autograder

    try:
        write_autograder(profile_name, output, load_spec(spec_files), spec_files)
    except (TriuError, SpecError) as error:
        stop(error)
    except OSError as error:
        stop(f"{output}: cannot be written: {error.strerror}")
    click.echo(str(output))

"""The command ``triu table``: many candidates beside each other."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from ..spec import Report, Spec, SpecError, load_spec
from .output import file_options, stop, terminal_width, write_all
from .progress import Progress

UNUSABLE = 2
FORMS = {
    "html": "a page, with what failed one click away",
    "json": "as data",
    "markdown": "for a repository or a pull request",
    "csv": "for a spreadsheet",
}


@click.command()
@click.argument("targets", nargs=-1, metavar="TARGET...")
@click.option(
    "--from",
    "stored",
    multiple=True,
    metavar="REPORT.json",
    help="A stored report (repeatable); so is a TARGET that ends in .json.",
)
@file_options(FORMS, "the table")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
@click.option("--claims", metavar="PATTERN", help="Only claims that match, like 'attention.*'.")
@click.option(
    "--spec", "spec_files", multiple=True, metavar="FILE", help="A TOML file with more claims (repeatable)."
)
@click.option("--examples", type=click.IntRange(1, 100000), default=24, show_default=True)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")
def table(
    targets: tuple[str, ...],
    stored: tuple[str, ...],
    seed: int,
    claims: str | None,
    spec_files: tuple[str, ...],
    examples: int,
    quiet: bool,
    **files: str | None,
) -> None:
    """The conformance table of several candidates: claims by candidates, with totals for each level.

    A TARGET is what `triu check` takes, or a report that it stored.  Exit status: 0 if each could be judged,
    2 if one could not; it then has a column that says why.
    """
    from ..reports.table import Column, table_csv, table_html, table_json, table_markdown, table_text, tabled

    # `--from *.json` leaves all but the first of the files to TARGET.
    kept = [name for name in targets if name.endswith(".json")]
    asked = [*stored, *targets] if len(kept) == len(targets) else [*targets, *stored]
    if not asked:
        stop("expected a TARGET or a stored report; for example: triu table baseline submission.py")
    try:
        spec = load_spec(spec_files)
    except SpecError as error:
        stop(error)
    columns: list[Column] = []
    with Progress(len(asked), "candidates", quiet=quiet) as progress:
        for name in asked:
            report = name in stored or (name.endswith(".json") and Path(name).is_file())
            columns.append(_stored(name) if report else _checked(name, spec, claims, seed, examples))
            progress.step()
    if claims:
        columns = [(target, _only(found, claims)) for target, found in columns]
        if not any(isinstance(found, str) or found.verdicts for _, found in columns):
            stop(f"--claims {claims}: no claim matches; `triu claims` lists all ids")
    found = tabled(columns, some=bool(claims))
    complete = write_all(
        files,
        {
            "html": partial(table_html, found, columns),
            "json": partial(table_json, found),
            "markdown": partial(table_markdown, found),
            "csv": partial(table_csv, found),
        },
    )
    if not quiet:
        click.echo(table_text(found, terminal_width()), nl=False)
    problems = [candidate.problem for candidate in found.candidates if candidate.problem]
    if problems:
        stop("\n".join(problems))
    sys.exit(0 if complete else UNUSABLE)


def _stored(name: str) -> tuple[str, Report | str]:
    from .showing import stored_report

    try:
        report = stored_report(name)
    except ValueError as error:
        return name, str(error)
    return str(report.candidate.get("target", name)), report


def _checked(name: str, spec: Spec, claims: str | None, seed: int, examples: int) -> tuple[str, Report | str]:
    from .api import open_check, select
    from .candidates.errors import TriuError

    try:
        selected = select(spec, claims)
        opened = open_check(name, spec=spec, seed=seed, examples=examples)
        try:
            return name, opened.report(selected)
        finally:
            opened.close()
    except TriuError as error:
        return name, str(error)


def _only(found: Report | str, pattern: str) -> Report | str:
    """A stored report reduced to the claims that were asked for."""
    from dataclasses import replace
    from fnmatch import fnmatchcase

    if isinstance(found, str):
        return found
    wanted = [part.strip() for part in pattern.split(",") if part.strip()]
    kept = [
        v for v in found.verdicts if any(fnmatchcase(v.claim, p) or fnmatchcase(v.role, p) for p in wanted)
    ]
    return replace(found, verdicts=tuple(kept))

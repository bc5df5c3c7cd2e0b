"""The command ``triu diff``: two stored reports compared, for the CI of a library.  Torch is not imported."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .output import file_options, in_color, stop, terminal_width, write_all

if TYPE_CHECKING:
    from ..reports.known import Known
    from ..spec import Report

NO_REGRESSION, REGRESSION, UNUSABLE = 0, 1, 2


@click.command()
@click.argument("old", metavar="OLD.json")
@click.argument("new", metavar="NEW.json")
@click.option(
    "--known", "known_file", metavar="FILE", help="Failures that are known and do not count (TOML)."
)
@click.option(
    "--write-known", "written_file", metavar="FILE",
    help="Write what is broken in NEW as known failures; reasons that are there already are kept.",
)  # fmt: skip
@file_options({"json": "as data", "markdown": "for a pull request"}, "the comparison")
@click.option("--quiet", "-q", is_flag=True, help="Print the outcome and the counts alone.")
def diff(
    old: str,
    new: str,
    known_file: str | None,
    written_file: str | None,
    quiet: bool,
    **files: str | None,
) -> None:
    """Compare two reports that `triu check --json` wrote: what fails now, what is fixed, what is judged no longer.

    A regression is a MUST claim that passed before and is broken now, or is not judged any more, or one that
    fails in another way than before or than is known.  Seeds, versions and targets may differ.

    \b
    Exit status: 0 no regression, 1 a regression, 2 a file is unusable.
    """
    from ..reports.diff import compare
    from ..reports.diff_shown import counts_line, diff_json, diff_markdown, diff_text, headline
    from ..reports.known import known_of, known_text

    reports = (_report(old), _report(new))
    known = () if known_file is None else _known(known_file)
    earlier = known
    if written_file is not None and Path(written_file).exists():
        earlier = (*known, *_known(written_file))
    try:
        difference = compare(*reports, known)
    except ValueError as error:
        stop(f"{old}, {new}: {error}")
    render = {"json": partial(diff_json, difference), "markdown": partial(diff_markdown, difference)}
    if written_file is not None:
        entries = known_of(reports[1], earlier)
        files["known"], render["known"] = written_file, partial(known_text, entries, reports[1])
    complete = write_all(files, render)
    if quiet:
        click.echo(f"{headline(difference)}\n{counts_line(difference)}")
    else:
        told = known_file or "the list"
        text = diff_text(difference, width=terminal_width(), color=in_color(), known_file=told)
        click.echo(text, nl=False)
    if written_file is not None:
        click.echo(f"known failures: {written_file}")
    status = REGRESSION if difference.regressions else NO_REGRESSION
    sys.exit(status if complete else UNUSABLE)


def _read(name: str, what: str) -> str:
    try:
        return Path(name).read_text("utf-8")
    except OSError as error:
        stop(f"{name}: cannot be read: {error.strerror}; expected {what}")
    except UnicodeDecodeError:
        stop(f"{name}: is no text in UTF-8; expected {what}")


def _report(name: str) -> Report:
    from .showing import stored_report

    try:
        return stored_report(name)
    except ValueError as error:
        stop(error)


def _known(name: str) -> tuple[Known, ...]:
    from ..reports.known import KnownError, read_known

    text = _read(name, "a TOML file of known failures; `triu diff --write-known` writes one")
    try:
        return read_known(text)
    except KnownError as error:
        stop(f"{name}: {error}")

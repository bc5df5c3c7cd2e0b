"""The command ``triu diff``: two stored reports compared, for the CI of a library.  Torch is not imported."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from ..reports.known import Known
    from ..spec import Report

NO_REGRESSION, REGRESSION, UNUSABLE = 0, 1, 2


def _stop(message: str) -> NoReturn:
    from ..reports.safe import clean_lines

    click.echo(f"triu: {clean_lines(message)}", err=True)
    sys.exit(UNUSABLE)


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
@click.option("--json", "json_file", metavar="FILE", help="Write the comparison as JSON.")
@click.option("--markdown", "markdown_file", metavar="FILE", help="Write it as Markdown, for a pull request.")
@click.option("--quiet", "-q", is_flag=True, help="Print the outcome and the counts alone.")
def diff(
    old: str,
    new: str,
    known_file: str | None,
    written_file: str | None,
    json_file: str | None,
    markdown_file: str | None,
    quiet: bool,
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
    from ..reports.writing import write_whole

    reports = (_report(old), _report(new))
    known = () if known_file is None else _known(known_file)
    earlier = known
    if written_file is not None and Path(written_file).exists():
        earlier = (*known, *_known(written_file))
    try:
        difference = compare(*reports, known)
    except ValueError as error:
        _stop(f"{old}, {new}: {error}")
    if quiet:
        click.echo(f"{headline(difference)}\n{counts_line(difference)}")
    else:
        width = min(120, shutil.get_terminal_size((100, 24)).columns)
        color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        click.echo(
            diff_text(difference, width=width, color=color, known_file=known_file or "the list"), nl=False
        )
    texts = [(json_file, diff_json(difference)), (markdown_file, diff_markdown(difference))]
    if written_file is not None:
        entries = known_of(reports[1], earlier)
        texts.append((written_file, known_text(entries, reports[1])))
        click.echo(f"known failures in {written_file}: {len(entries)}")
    status = REGRESSION if difference.regressions else NO_REGRESSION
    for name, text in texts:
        if name is None:
            continue
        try:
            write_whole(name, text)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            click.echo(f"triu: {name}: cannot be written: {why}; the comparison above is complete", err=True)
            status = UNUSABLE
    sys.exit(status)


def _read(name: str, what: str) -> str:
    try:
        return Path(name).read_text("utf-8")
    except OSError as error:
        _stop(f"{name}: cannot be read: {error.strerror}; expected {what}")
    except UnicodeDecodeError:
        _stop(f"{name}: is no text in UTF-8; expected {what}")


def _report(name: str) -> Report:
    from ..reports.json_report import from_json

    text = _read(name, "a report that `triu check --json` wrote")
    try:
        return from_json(text)
    except KeyError as error:
        why = f"{error} is missing"
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        why = str(error)
    _stop(
        f"{name}: is not a whole report of this version of triu: {why}; write it anew with `triu check --json`"
    )


def _known(name: str) -> tuple[Known, ...]:
    from ..reports.known import KnownError, read_known

    text = _read(name, "a TOML file of known failures; `triu diff --write-known` writes one")
    try:
        return read_known(text)
    except KnownError as error:
        _stop(f"{name}: {error}")

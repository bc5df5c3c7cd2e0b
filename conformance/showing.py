"""The command ``triu show``: a stored report in another form."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import click

from ..spec import Report
from .output import file_options, in_color, renderers, terminal_width, write_all

UNUSABLE = 2


@click.command()
@click.argument("file", metavar="REPORT.json")
@file_options()
@click.option("--show-binding", is_flag=True, help="Show in full what was found, with each convention.")
@click.option("--quiet", "-q", is_flag=True, help="Print the verdict alone.")
def show(file: str, show_binding: bool, quiet: bool, **files: str | None) -> None:
    """Show a report that `triu check --json` or `triu grade` stored, or write it in another form.

    Nothing is run. Of a grade everything is shown, hidden cases too: not for students. Exit status: 0, or 2 if
    FILE is no whole report.
    """
    from ..reports import to_text
    from ..reports.text import counts_line, headline

    try:
        report = stored_report(file)
    except ValueError as error:
        from ..reports.safe import clean_lines

        click.echo(f"triu: {clean_lines(str(error))}", err=True)
        sys.exit(UNUSABLE)
    complete = write_all(files, {form: partial(render, report) for form, render in renderers().items()})
    if quiet:
        click.echo(f"{headline(report)}\n{counts_line(report)}")
    else:
        text = to_text(report, width=terminal_width(), color=in_color(), binding=show_binding)
        click.echo(text, nl=False)
    sys.exit(0 if complete else UNUSABLE)


def _document(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # told by the reader
        return None


def stored_report(file: str) -> Report:
    """The report in a file that ``triu check --json`` or ``triu grade`` wrote.

    Raises ValueError where it cannot be read, is no whole report, or is a grade without one.
    """
    from ..reports import from_json
    from ..reports.grade_json import grade_from_json

    try:
        text = Path(file).read_text("utf-8")
        document = _document(text) if '"submission"' in text else None
        if not isinstance(document, dict) or "submission" not in document:
            return from_json(text)
        grade = grade_from_json(text)
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{file}: is no text in UTF-8; expected a report that triu wrote") from None
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    if grade.report is None:
        raise ValueError(f"{file}: it was not graded, so there is no report: {grade.word}: {grade.reason}")
    return grade.report

"""The command ``triu show``: a stored report in another form."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from ..spec import Report
from .output import file_options, in_color, renderers, stop, terminal_width, write_all

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
        stop(error)
    complete = write_all(files, {form: partial(render, report) for form, render in renderers().items()})
    if quiet:
        click.echo(f"{headline(report)}\n{counts_line(report)}")
    else:
        text = to_text(report, width=terminal_width(), color=in_color(), binding=show_binding)
        click.echo(text, nl=False)
    sys.exit(0 if complete else UNUSABLE)


def stored_report(file: str) -> Report:
    """The report in a file that ``triu check --json`` or ``triu grade`` wrote.

    Raises ValueError where it cannot be read, is no whole report, or is a grade without one.
    """
    from ..reports.grade_json import grade_from_document
    from ..reports.json_report import from_document, parsed

    try:
        document = parsed(Path(file).read_text("utf-8"), "report", "write it again with triu check --json")
        if not isinstance(document, dict) or "submission" not in document:
            return from_document(document)
        grade = grade_from_document(document)
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{file}: is no text in UTF-8; expected a report that triu wrote") from None
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    if grade.report is None:
        raise ValueError(f"{file}: it was not graded, so there is no report: {grade.word}: {grade.reason}")
    return grade.report

"""What a command writes besides what it prints: a report in each of its forms."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import click

from ..spec import Report

FORMS = {
    "html": "a page with pictures",
    "json": "by its schema, for `triu replay`, `triu diff` and `triu table`",
    "markdown": "for a pull request",
    "csv": "for a spreadsheet",
}


def file_options(forms: Mapping[str, str] = FORMS, what: str = "the report") -> Callable[[Any], Any]:
    """Options ``--html FILE`` and so on; their values go to the parameter of the same name."""

    def decorate(command: Any) -> Any:
        for name, told in reversed(list(forms.items())):
            command = click.option(f"--{name}", metavar="FILE", help=f"Write {what}: {told}.")(command)
        return command

    return decorate


def renderers() -> Mapping[str, Callable[[Report], str]]:
    """How a report is written in each of the forms."""
    from ..reports import to_html, to_json, to_markdown
    from ..reports.spreadsheet import report_csv

    return {"html": to_html, "json": to_json, "markdown": to_markdown, "csv": report_csv}


def write_all(files: Mapping[str, str | None], render: Mapping[str, Callable[[], str]]) -> bool:
    """Write each form that was asked for, say what could not be written, and return whether all was."""
    from ..reports import write_whole

    complete = True
    for form, name in files.items():
        if not name:
            continue
        try:
            write_whole(Path(name), render[form]())
        except (OSError, ValueError, ArithmeticError, RecursionError) as error:
            why = getattr(error, "strerror", None) or error
            click.echo(f"triu: {name}: cannot be written: {why}; what is printed is complete", err=True)
            complete = False
    return complete


def stop(message: object, status: int = 2) -> NoReturn:
    """End the command with a message on standard error; nothing in it moves a terminal's cursor."""
    from ..reports.safe import clean_lines

    click.echo(f"triu: {clean_lines(str(message))}", err=True)
    sys.exit(status)


def terminal_width() -> int:
    """Columns to fill: those of the terminal up to 120; 100 where there is none."""
    return min(120, shutil.get_terminal_size((100, 24)).columns)


def in_color() -> bool:
    """Whether standard output is a terminal and nobody asked for none."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def stop_commands() -> Callable[[], None]:
    """Tell GitHub to take nothing that is printed for a command, until the function that comes back is called.

    It is called at the end of the command in any case.
    """
    token = secrets.token_hex(16)
    stopped = [True]

    def go_on() -> None:
        if stopped:
            stopped.clear()
            sys.stderr.flush()
            click.echo(f"::{token}::")
            sys.stdout.flush()

    click.echo(f"::stop-commands::{token}")
    sys.stdout.flush()
    click.get_current_context().call_on_close(go_on)
    return go_on


def tell_github(report: Report) -> None:
    """Annotations, and the job's summary where GitHub wants it."""
    from ..reports import to_markdown
    from ..reports.github import annotations

    click.echo(annotations(report), nl=False)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        told = to_markdown(report).encode("utf-8", "backslashreplace")
        if len(told) > 900_000:  # GitHub drops a summary above 1 MiB as a whole
            told = told[:900_000].decode("utf-8", "ignore").encode() + "\n\n… (cut)\n".encode()
        try:
            with open(summary, "ab") as stream:
                stream.write(told + b"\n")
        except OSError as error:
            click.echo(f"triu: {summary}: the summary cannot be written: {error.strerror}", err=True)

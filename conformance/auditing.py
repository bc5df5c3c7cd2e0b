"""The command ``triu audit``: what becomes of every checkable statement of the lessons."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from ..spec import FINDINGS, Finding, Lesson, Spec, SpecError, lesson_files, load_lesson, load_spec
from .output import file_options, in_color, stop, terminal_width, write_all
from .progress import Progress

AS_DECLARED, DIFFERS, UNUSABLE = 0, 1, 2
FORMS = {
    "html": "a page",
    "json": "as data",
    "markdown": "for the lessons' authors",
    "coverage": "the other way round, each claim with the statements that it checks, as Markdown",
}


@click.command()
@click.argument("document", required=False)
@click.option(
    "--verdict", "verdicts", multiple=True, type=click.Choice(FINDINGS),
    help="Print only the rows with this verdict (repeatable).",
)  # fmt: skip
@file_options(FORMS, "the audit")
@click.option("--quiet", "-q", is_flag=True, help="Print the summary alone.")
def audit(document: str | None, verdicts: tuple[str, ...], quiet: bool, **files: str | None) -> None:
    """Audit lessons: compute the verdict on every checkable statement, and compare it with the ledger.

    DOCUMENT is a lesson that comes with triu, or a ledger of your own (a TOML file, whose code is run as you).
    Exit status: 0 if all comes out as declared, 1 if a row does not, 2 if a ledger is unusable.
    """
    if document is not None and files["coverage"]:
        stop("--coverage goes through all lessons; leave DOCUMENT out")
    spec = load_spec()
    try:
        lessons = _lessons(document, spec)
    except SpecError as error:
        stop(error)
    from ..reports.audit import audit_json, audit_text
    from ..reports.audit_html import audit_html
    from ..reports.audit_markdown import audit_markdown
    from ..reports.coverage import coverage_markdown
    from .audit import Judge
    from .audit import audit as audit_lesson

    judge = Judge(spec)
    with Progress(sum(len(lesson.statements) for lesson in lessons), "rows", quiet=quiet) as progress:
        found = [audit_lesson(lesson, judge, progress.step) for lesson in lessons]
    judge.close()
    complete = write_all(
        files,
        {
            "html": partial(audit_html, found),
            "json": partial(audit_json, found),
            "markdown": partial(audit_markdown, found),
            "coverage": partial(coverage_markdown, spec, lessons),
        },
    )
    shown: list[Finding] = [f for f in FINDINGS if f in verdicts or not verdicts]
    click.echo(audit_text(found, [] if quiet else shown, width=terminal_width(), color=in_color()), nl=False)
    if not complete:
        sys.exit(UNUSABLE)
    sys.exit(DIFFERS if any(lesson.problems for lesson in found) else AS_DECLARED)


def _lessons(document: str | None, spec: Spec) -> list[Lesson]:
    """The lesson that was asked for, or all."""
    files = {path.stem: path for path in lesson_files()}
    if document is None:
        return [load_lesson(path, spec) for path in files.values()]
    path = files.get(document, Path(document))
    if document not in files and not path.exists():
        stop(f"no lesson {document!r}; expected {', '.join(files)} or a TOML file")
    return [load_lesson(path, spec)]

"""A report as Markdown: for a pull request, a course page, a file beside the submission."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from ..spec import Failure, Report
from .safe import clean_lines, code_span, markdown
from .text import LOUD, case_line, counts_line, headline, likely_line, side_by_side


def to_markdown(report: Report) -> str:
    """The whole report as Markdown; nothing in it is taken for markup that a candidate wrote."""
    lines = [f"# {markdown(headline(report))}", "", markdown(counts_line(report)), "", "## Found", ""]
    rows = []
    for item in report.binding:
        told = "; ".join(f"{name}: {value} ({how})" for name, (value, how) in item.conventions.items())
        rows.append(
            [
                item.role,
                markdown(item.signature),
                markdown(told if item.judged else f"not judged: {item.problem}"),
            ]
        )
    lines += [tabulate(rows, ["role", "object", "conventions"], tablefmt="pipe"), ""]
    lines += [f"Note: {markdown(note)}" for note in report.notes]
    loud = [verdict for verdict in report.verdicts if verdict.verdict in LOUD]
    if loud:
        lines += ["", "## What did not pass", ""]
    for verdict in loud:
        failure = verdict.failure or Failure(verdict.reason)
        lines += [f"### {markdown(verdict.object)}: {markdown(verdict.title)}", ""]
        lines += [f"{verdict.level} {code_span(verdict.claim)}: **{verdict.verdict}**", ""]
        lines += [markdown(text) + "\n" for text in (failure.meant, failure.what) if text]
        compared = side_by_side(failure, 90)
        if compared:
            lines += [fenced("\n".join(compared), "text"), ""]
        if failure.case and verdict.verdict != "inconclusive":
            lines += ["Smallest case: " + markdown(case_line(failure)), ""]
        if failure.likely:
            lines += [markdown(likely_line(failure.likely, verdict.object)), ""]
        advice = failure.likely.correction if failure.likely else failure.hint
        if advice:
            lines += [f"What to do: {markdown(advice)}", ""]
        if failure.snippet:
            lines += [fenced(failure.snippet, "python"), ""]
    lines += ["## All claims", ""]
    table = [
        [
            code_span(v.claim),
            v.level,
            markdown(v.object),
            v.verdict,
            v.evidence.cases or "",
            markdown(v.reason),
        ]
        for v in report.verdicts
    ]
    lines += [tabulate(table, ["claim", "level", "object", "verdict", "cases", "why"], tablefmt="pipe"), ""]
    return "\n".join(lines)


def fenced(text: str, language: str) -> str:
    """A fenced block that its text cannot close."""
    body = clean_lines(text)
    fence = "```"
    while fence in body:
        fence += "`"
    return f"{fence}{language}\n{body}\n{fence}"


def pipes(body: Sequence[Sequence[str]], heads: Sequence[str]) -> list[str]:
    """A table without padding: a change of one row is a change of one line."""
    rule = ["---"] * len(heads)
    return [f"| {' | '.join(cell or ' ' for cell in row)} |" for row in (heads, rule, *body)]

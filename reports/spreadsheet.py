"""Tables as CSV, for a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from ..spec import Report
from .safe import clean
from .text import likely_line


def to_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV, every cell in quotes.

    It begins with a byte order mark: without one Excel takes UTF-8 for the code page of the machine and garbles
    names; readers in Python want ``encoding="utf-8-sig"``.  A text that a spreadsheet would compute begins with
    an apostrophe.
    """
    text = io.StringIO()
    table = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    for row in (header, *rows):
        table.writerow([_cell(str(value)) for value in row])
    return "\ufeff" + text.getvalue()


def _cell(text: str) -> str:
    """A text that no spreadsheet computes, not even one that takes a semicolon for the end of a cell."""
    raw, text = text, re.sub(r";(?=\s*[=+\-@＝＋－＠])", ";'", clean(text))
    start = unicodedata.normalize("NFKC", text.lstrip()[:1])
    return f"'{text}" if start in ("=", "+", "-", "@") or raw.startswith(("\t", "\r", "\n")) else text


VERDICTS = (
    *("claim", "title", "role", "level", "object", "verdict", "cases", "margin", "reason", "what happened"),
    *("likely mistake", "what to do", "source"),
)


def report_csv(report: Report) -> str:
    """A report as CSV, a row for each verdict."""
    rows = []
    for v in report.verdicts:
        failure = v.failure
        likely = failure.likely if failure else None
        rows.append(
            (
                *(v.claim, v.title, v.role, v.level, v.object, v.verdict, v.evidence.cases),
                "" if v.margin is None else v.margin,
                v.reason,
                failure.what if failure else "",
                likely_line(likely, v.object).removeprefix("likely mistake: ") if likely else "",
                (likely.correction if likely else failure.hint) if failure else "",
                "; ".join(v.source),
            )
        )
    return to_csv(VERDICTS, rows)

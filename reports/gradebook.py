"""The grades of a course as a table for a spreadsheet or an LMS."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable

from ..spec import Grade, Profile
from .feedback import number
from .safe import clean


def gradebook_csv(grades: Iterable[Grade], profile: Profile) -> str:
    """One row a submission, sorted by name: points together and by milestone, status and reason.

    It begins with a byte order mark: without one Excel takes UTF-8 for the code page of the machine and garbles
    names; readers in Python want ``encoding="utf-8-sig"``.  What was not graded has no points, not 0.  A text
    that a spreadsheet would compute begins with an apostrophe.  Raises ValueError for a grade of another profile.
    """
    milestones = [milestone.id for milestone in profile.milestones]
    text = io.StringIO()
    table = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    table.writerow([*map(_cell, ("submission", "score", "max_score", "status", *milestones, "reason"))])
    for grade in sorted(grades, key=lambda grade: grade.submission):
        if grade.profile[0] != profile.id:
            raise ValueError(
                f"{clean(grade.submission, 300)} was graded by the profile {grade.profile[0]!r}, "
                f"this table is for {profile.id!r}: grade it again, or leave it out"
            )
        points = [grade.score, *map(grade.score_of, milestones)]
        total, *parts = map(number, points) if grade.status == "graded" else [""] * len(points)
        row = (grade.submission, total, number(profile.points), grade.status, *parts, grade.reason)
        table.writerow([*map(_cell, row)])
    return "\ufeff" + text.getvalue()


def _cell(text: str) -> str:
    """A text that no spreadsheet computes, not even one that takes a semicolon for the end of a cell."""
    raw, text = text, re.sub(r";(?=\s*[=+\-@＝＋－＠])", ";'", clean(text))
    start = unicodedata.normalize("NFKC", text.lstrip()[:1])
    return f"'{text}" if start in ("=", "+", "-", "@") or raw.startswith(("\t", "\r", "\n")) else text

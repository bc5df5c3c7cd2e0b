"""The grades of a course as a table for a spreadsheet or an LMS."""

from __future__ import annotations

from collections.abc import Iterable

from ..spec import Grade, Profile
from .feedback import number
from .safe import clean
from .spreadsheet import to_csv


def gradebook_csv(grades: Iterable[Grade], profile: Profile) -> str:
    """One row a submission, sorted by name: points together and by milestone, status and reason.

    It begins with a byte order mark: without one Excel takes UTF-8 for the code page of the machine and garbles
    names; readers in Python want ``encoding="utf-8-sig"``.  What was not graded has no points, not 0.  A text
    that a spreadsheet would compute begins with an apostrophe.  Raises ValueError for a grade of another profile.
    """
    milestones = [milestone.id for milestone in profile.milestones]
    rows: list[tuple[str, ...]] = []
    for grade in sorted(grades, key=lambda grade: grade.submission):
        if grade.profile[0] != profile.id:
            raise ValueError(
                f"{clean(grade.submission, 300)} was graded by the profile {grade.profile[0]!r}, "
                f"this table is for {profile.id!r}: grade it again, or leave it out"
            )
        points = [grade.score, *map(grade.score_of, milestones)]
        total, *parts = map(number, points) if grade.status == "graded" else [""] * len(points)
        rows.append((grade.submission, total, number(profile.points), grade.status, *parts, grade.reason))
    return to_csv(("submission", "score", "max_score", "status", *milestones, "reason"), rows)

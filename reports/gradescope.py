"""A grade as the ``results.json`` that Gradescope reads from an autograder."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from ..spec import Grade
from .feedback import Feedback, Line, feedback, line_text


def gradescope_results(grade: Grade) -> str:
    """The text of ``results.json``: one test for each item, as plain text, in which Gradescope renders nothing.

    Hidden items stay visible with what a student may see of them: Gradescope shows no total score as long as
    one test is hidden.  There is no score at the top, where it would override the sum of the tests.

    What could not be graded becomes one failed test without a score, which Gradescope takes as information, and
    there is no score at all.  Its documentation asks for a score somewhere and does not say what follows without:
    either the submission stays without one, or its results are called ill-formed.  Neither records 0 points, which
    would look like a mark.
    """
    told = feedback(grade)
    tests = [_test(line) for part in told.parts for line in part.lines]
    if not told.graded:
        why = f"{told.reason}\n\nWhat to do: {told.advice}\n"
        tests = [_shown(name="Could not be graded", number="1", status="failed", output=why)]
    document = {
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "execution_time": round(grade.seconds, 3),
        "output": _summary(told),
        "output_format": "text",
        "tests": tests,
        "extra_data": {"profile": grade.profile[0], "status": grade.status, "word": grade.word},
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _test(line: Line) -> dict[str, Any]:
    return _shown(
        name=line.title,
        number=line.number,
        status="passed" if line.status == "passed" else "failed",
        output=line_text(line),
        score=_json(line.score),
        max_score=_json(line.points),
    )


def _shown(**fields: Any) -> dict[str, Any]:
    return {**fields, "name_format": "text", "output_format": "text", "visibility": "visible"}


def _json(points: str) -> int | float:
    """Points as a number of JSON: the digits that it is written with are those of the decimal."""
    value = Decimal(points)
    return int(value) if value == value.to_integral_value() else float(value)


def _summary(told: Feedback) -> str:
    """What concerns the whole submission."""
    lines = [told.assignment]
    if told.graded:
        lines += [f"{part.title}: {part.score} of {part.points} points" for part in told.parts]
    else:
        lines += ["Not graded. This is not 0 points: nothing could be judged.", f"Why: {told.reason}"]
    lines += [f"Note: {note}" for note in told.notes]
    if told.output or told.withheld:
        lines += ["", "What it printed:" if told.output else told.withheld, told.output]
    return "\n".join(lines).rstrip() + "\n"

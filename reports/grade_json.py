"""A grade as JSON and back: all of it, with the seed and every case, so not for students."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import Any, get_args

from ..spec import Grade, Item, ItemScore, Milestone, Report, Verdict
from ..spec.grade import GRADE_FORMAT, GradeStatus, ItemStatus
from .json_report import as_document, finite, from_document, parsed


def grade_to_json(grade: Grade) -> str:
    """The grade as JSON text, with points as text of exact decimals; the same grade gives the same text.

    The verdicts of an item are those of the report on its claims, and not written again.  As in a report, numbers
    that are not finite become text.
    """
    document = {
        "format": grade.format,
        "submission": grade.submission,
        "profile": list(grade.profile),
        "status": grade.status,
        "word": grade.word,
        "reason": grade.reason,
        "score": str(grade.score),
        "max_score": str(grade.max_score),
        "milestones": [_milestone(milestone) for milestone in grade.milestones],
        "items": [
            {
                "item": _item(scored.item),
                "score": str(scored.score),
                "status": scored.status,
            }
            for scored in grade.items
        ],
        "notes": list(grade.notes),
        "output": grade.output,
        "layers": list(grade.layers),
        "seconds": grade.seconds,
        "seed": grade.seed,
        "extra": dict(grade.extra),
        "report": None if grade.report is None else as_document(grade.report),
    }
    return json.dumps(finite(document), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def grade_from_json(text: str) -> Grade:
    """Read a grade that :func:`grade_to_json` wrote.

    Raises ValueError where the text is cut short, is of another format, or lacks a part.
    """
    return grade_from_document(parsed(text, "grade", "grade it again"))


def grade_from_document(document: Any) -> Grade:
    """Read a grade from parsed JSON.  Raises ValueError as :func:`grade_from_json` does."""
    if not isinstance(document, dict) or "submission" not in document or "format" not in document:
        raise ValueError("this is no triu grade: it has no format or no submission; look which file it is")
    if document["format"] != GRADE_FORMAT:
        raise ValueError(
            f"this grade has the format {document['format']!r:.40}, this triu reads {GRADE_FORMAT}: grade it again"
        )
    try:
        return _read(document)
    except (KeyError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
        raise ValueError(
            f"this triu grade lacks a part or has one of another kind: {type(error).__name__}: {error}; grade it again"
        ) from None


def _read(document: Mapping[str, Any]) -> Grade:
    report = None if document["report"] is None else from_document(document["report"])
    profile, title = document["profile"]
    grade = Grade(
        submission=document["submission"],
        profile=(profile, title),
        status=_one_of(document["status"], GradeStatus),
        word=document["word"],
        reason=document["reason"],
        items=tuple(
            ItemScore(
                _read_item(scored["item"]),
                Decimal(scored["score"]),
                _one_of(scored["status"], ItemStatus),
                _verdicts_on(scored["item"]["claims"], report),
            )
            for scored in document["items"]
        ),
        max_score=Decimal(document["max_score"]),
        notes=tuple(document["notes"]),
        output=document["output"],
        layers=tuple(document["layers"]),
        seconds=document["seconds"],
        seed=document["seed"],
        report=report,
        milestones=tuple(
            Milestone(m["id"], m["title"], tuple(_read_item(item) for item in m["items"]))
            for m in document["milestones"]
        ),
        extra=document["extra"],
    )
    if str(grade.score) != document["score"]:
        raise ValueError(f"its score is {document['score']}, its items sum to {grade.score}")
    return grade


def _milestone(milestone: Milestone) -> dict[str, Any]:
    return {"id": milestone.id, "title": milestone.title, "items": [_item(item) for item in milestone.items]}


def _item(item: Item) -> dict[str, Any]:
    return {**asdict(item), "points": str(item.points)}


def _read_item(item: Mapping[str, Any]) -> Item:
    return Item(**{**item, "claims": tuple(item["claims"]), "points": Decimal(item["points"])})


def _verdicts_on(claims: Sequence[str], report: Report | None) -> tuple[Verdict, ...]:
    known = () if report is None else report.verdicts
    return tuple(verdict for claim in claims for verdict in known if verdict.claim == claim)


def _one_of(value: Any, choices: Any) -> Any:
    if value not in get_args(choices):
        raise ValueError(f"{value!r:.40} is none of {', '.join(get_args(choices))}")
    return value

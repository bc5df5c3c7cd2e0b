"""A report as JSON and back, by ``report.schema.json``.

Not-a-number and infinity become strings, so that any reader can take it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from ..spec import BoundObject, Evidence, Failure, Likely, Picture, Report, Verdict
from ..spec.verdict import REPORT_FORMAT

SCHEMA = Path(__file__).with_name("report.schema.json")


def to_json(report: Report) -> str:
    """The report as JSON text; the same report gives the same text.

    Raises ValueError where it does not follow the schema: a fault of triu.
    """
    return json.dumps(as_document(report), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_document(report: Report) -> dict[str, Any]:
    """The report as JSON holds it.  Raises ValueError where it does not follow the schema: a fault of triu."""
    document = finite(_document(report))
    complaint = _complaint(document)
    if complaint:
        raise ValueError(f"the report does not follow its own schema, a fault of triu: {complaint}")
    return document


def _document(report: Report) -> dict[str, Any]:
    return {
        "format": report.format,
        "conforms": report.conforms,
        "seed": report.seed,
        "candidate": dict(report.candidate),
        "counts": report.counts,
        "provides": list(report.provides),
        "notes": list(report.notes),
        "binding": [_bound(item) for item in report.binding],
        "environment": dict(report.environment),
        "verdicts": [_verdict(verdict) for verdict in report.verdicts],
    }


def from_json(text: str) -> Report:
    """Read a report that :func:`to_json` wrote.

    Raises ValueError where the text is cut short, is of another format, or does not follow the schema.
    """
    return from_document(parsed(text, "report", "write it again with triu check --json"))


def parsed(text: str, what: str, advice: str) -> Any:
    """JSON of a file of triu's.  Raises ValueError where it is cut short or no JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"this is no whole triu {what}, it may be cut short: {error}; {advice}") from None
    except RecursionError:
        raise ValueError(f"this is no triu {what}: it is nested too deeply; {advice}") from None


def from_document(document: Any) -> Report:
    """Read a report from parsed JSON.

    Raises ValueError where it is of another format, or does not follow the schema.
    """
    if not isinstance(document, dict) or "format" not in document or "verdicts" not in document:
        raise ValueError("this is no triu report: it has no format or no verdicts; look which file it is")
    if document["format"] != REPORT_FORMAT:
        raise ValueError(
            f"this report has the format {document['format']!r:.40}, this triu reads {REPORT_FORMAT}: "
            "write it again with triu check --json"
        )
    complaint = _complaint(document)
    if complaint:
        raise ValueError(f"this triu report lacks a part or has one of another kind: {complaint}")
    return Report(
        candidate=document["candidate"],
        seed=document["seed"],
        binding=tuple(
            BoundObject(
                item["role"],
                item["object"],
                item["signature"],
                item["arguments"],
                {n: (c["value"], c["source"]) for n, c in item["conventions"].items()},
                item["judged"],
                item["problem"],
                tuple(item["ignored"]),
                item["file"],
                item["line"],
            )
            for item in document["binding"]
        ),
        verdicts=tuple(_read_verdict(item) for item in document["verdicts"]),
        environment=document["environment"],
        notes=tuple(document["notes"]),
    )


def _complaint(document: Any) -> str:
    """Where a document departs from the schema, or nothing."""
    import fastjsonschema

    try:
        _validator()(document)
    except fastjsonschema.JsonSchemaValueException as error:
        return str(error)[:300]
    return ""


@cache
def _validator() -> Any:
    import fastjsonschema

    return fastjsonschema.compile(json.loads(SCHEMA.read_text("utf-8")), use_default=False)


def _bound(item: BoundObject) -> dict[str, Any]:
    conventions = {
        name: {"value": value, "source": source} for name, (value, source) in item.conventions.items()
    }
    return {**asdict(item), "arguments": dict(item.arguments), "conventions": conventions}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    document: dict[str, Any] = {
        "claim": verdict.claim,
        "title": verdict.title,
        "role": verdict.role,
        "level": verdict.level,
        "object": verdict.object,
        "verdict": verdict.verdict,
        "evidence": asdict(verdict.evidence),
        "margin": verdict.margin,
        "source": list(verdict.source),
    }
    if verdict.reason:
        document["reason"] = verdict.reason
    if verdict.failure is not None:
        document["failure"] = asdict(verdict.failure)
    return document


def _read_verdict(item: Mapping[str, Any]) -> Verdict:
    failure = item.get("failure")
    if failure is not None:
        index, likely = failure["index"], failure["likely"]
        read = {
            "index": None if index is None else tuple(index),
            "wrong": tuple(tuple(place) for place in failure["wrong"]),
            "told": tuple(failure["told"]),
            "likely": None if likely is None else Likely(**likely),
            "picture": _read_picture(failure["picture"]),
        }
        failure = Failure(**{**failure, **read})
    seen = item["evidence"]
    evidence = Evidence(seen["cases"], tuple(seen["seen"]), tuple(seen["missing"]), tuple(seen["waived"]))
    return Verdict(
        item["claim"],
        item["title"],
        item["role"],
        item["level"],
        item["object"],
        item["verdict"],
        evidence,
        item["margin"],
        item.get("reason", ""),
        failure,
        tuple(item["source"]),
    )


def _read_picture(item: Mapping[str, Any] | None) -> Picture | None:
    if item is None:
        return None
    read = {
        "expected": None if item["expected"] is None else tuple(map(tuple, item["expected"])),
        "observed": tuple(map(tuple, item["observed"])),
        "wrong": tuple((i, j) for i, j in item["wrong"]),
        "start": tuple(item["start"]),
        "size": tuple(item["size"]),
    }
    return Picture(**{**item, **read})


def finite(value: Any) -> Any:
    """A value as JSON holds it: lists for tuples, text for what is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < 2**63 else f"{value.bit_length()} bits"
    if value is None or isinstance(value, bool | float | str):
        return value
    return finite(value.tolist()) if hasattr(value, "tolist") else str(value)

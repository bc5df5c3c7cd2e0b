"""A report as JSON and back.  Not-a-number and infinity become strings, so that any reader can take it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..spec import BoundObject, Evidence, Failure, Likely, Picture, Report, Verdict
from ..spec.verdict import REPORT_FORMAT


def to_json(report: Report) -> str:
    """The report as JSON text; the same report gives the same text."""
    document = {
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
    return json.dumps(finite(document), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(text: str) -> Report:
    """Read a report that :func:`to_json` wrote.

    Raises ValueError where the text is not a whole report of this format.
    """
    document = json.loads(text)
    if (
        not isinstance(document, dict)
        or document.get("format") != REPORT_FORMAT
        or "verdicts" not in document
    ):
        raise ValueError(f"this is no triu report of format {REPORT_FORMAT}")
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
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.item() if hasattr(value, "item") else str(value)

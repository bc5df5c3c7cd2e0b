"""Known failures of a library: a TOML file of entries, each a claim, an object and what its failure is known by."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..spec import Report, Verdict
from .fingerprint import fingerprint, sentence
from .safe import clean

BROKEN = ("failed", "errored", "inconclusive", "suite_fault")
FIELDS = ("claim", "object", "fingerprint", "reason")


class KnownError(ValueError):
    """A file of known failures cannot be used; the message says where, what was found, and what was expected."""


@dataclass(frozen=True)
class Known:
    """A failure that is known.  ``object`` is cleaned, as it is shown; ``reason`` is for people."""

    claim: str
    object: str
    fingerprint: str
    reason: str = ""

    @property
    def place(self) -> tuple[str, str]:
        return self.claim, self.object


def place(verdict: Verdict) -> tuple[str, str]:
    """Where an entry would put a verdict."""
    return clean(verdict.claim), clean(verdict.object)


def read_known(text: str) -> tuple[Known, ...]:
    """The entries of a file, in its order.  Raises KnownError."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise KnownError(f"is no TOML: {error}") from None
    entries = document.pop("known", [])
    if document:
        raise KnownError(f"found {', '.join(map(clean, document))}; expected [[known]] entries alone")
    if not isinstance(entries, list):
        raise KnownError("known: expected entries that begin with [[known]], in two pairs of brackets")
    return tuple(_entry(entry, number) for number, entry in enumerate(entries, 1))


def _entry(entry: object, number: int) -> Known:
    if not isinstance(entry, dict):
        raise KnownError(f"entry {number}: found {clean(entry, 60)}, expected a table")
    where = f"entry {number} ({clean(entry.get('claim', 'no claim'), 80)})"
    for field in entry:
        if field not in FIELDS:
            raise KnownError(f"{where}: found the field {clean(field)}, expected {', '.join(FIELDS)}")
    for field in FIELDS:
        found = entry.get(field, "" if field == "reason" else None)
        if not isinstance(found, str):
            told = "nothing" if found is None else clean(found, 60)
            raise KnownError(f"{where}: {field}: found {told}, expected text in quotes")
    if not re.fullmatch("[0-9a-f]{12}", entry["fingerprint"]):
        told = clean(entry["fingerprint"], 60)
        raise KnownError(
            f"{where}: fingerprint: found {told!r}, expected 12 hex digits, as --write-known writes them"
        )
    return Known(**entry)


def known_of(report: Report, earlier: Sequence[Known] = ()) -> tuple[Known, ...]:
    """What is broken in a report (MUST and SHOULD) as entries.

    Reasons are taken from ``earlier`` entries: of the same failure, or else of the same claim and object.
    Entries of claims that are blocked now are kept, as nothing is known of them.
    """
    reasons: dict[object, str] = {}
    for entry in earlier:
        for key in (entry.place, (*entry.place, entry.fingerprint)):
            reasons[key] = reasons.get(key) or entry.reason
    found: dict[tuple[str, str, str], Known] = {}
    for verdict in report.verdicts:
        here = place(verdict)
        if verdict.verdict in BROKEN and verdict.level in ("MUST", "SHOULD"):
            key = (*here, fingerprint(verdict))
            found[key] = Known(*key, reasons.get(key) or reasons.get(here, ""))
        elif verdict.verdict == "blocked":
            found |= {(*e.place, e.fingerprint): e for e in earlier if e.place == here}
    return tuple(found.values())


def known_text(entries: Iterable[Known], report: Report) -> str:
    """The entries as TOML that :func:`read_known` reads, each under the sentence of its failure."""
    sentences = {place(v): sentence(v) for v in report.verdicts if v.verdict in BROKEN}
    lines = [
        "# Known failures, for `triu diff --known`.  A reason is yours to write; it is kept when",
        "# `triu diff --write-known` writes this file again.",
    ]
    for entry in entries:
        said = clean(sentences.get(entry.place, "not tried: it rests on a claim that is broken"), 300)
        lines += ["", f"# {said}", "[[known]]"]
        lines += [f"{field} = {_quoted(getattr(entry, field))}" for field in FIELDS]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A TOML string on one line."""
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\u{ord(found[0]):04x}", text) + '"'

"""Two reports compared, shown: for a terminal, as Markdown for a pull request, as JSON."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..spec import Verdict
from .diff import KINDS, RESTS, Change, Difference, Kind, about
from .fingerprint import fingerprint, sentence
from .json_report import finite
from .known import BROKEN
from .safe import clean, markdown
from .text import MARKS, painter, wrapped

FORMAT = 1
TITLES: Mapping[Kind, str] = {
    "newly_failing": "Newly failing",
    "fixed": "Fixed",
    "newly_unsupported": "Passed before, not judged now",
    "failing_otherwise": "Failing otherwise than before",
    "still_failing": "Still failing",
    "new_claims": "New claims",
    "no_longer_judged": "Failed before, not judged now",
    "newly_passing": "Passing, not judged before",
}
LONG = 240  # characters of a sentence
MANY = 50  # lines of a section of Markdown: a comment has limited room
NAMED = 3  # claims of a line that tells of several


def headline(difference: Difference) -> str:
    """The outcome in a sentence."""
    found = difference.regressions
    target = clean(difference.new.candidate.get("target", "?"))
    if not found:
        return f"{target}: no regression"
    counts: dict[Kind, int] = {kind: sum(change.kind == kind for change in found) for kind in KINDS}
    told = ", ".join(f"{n} {_words(kind)}" for kind, n in counts.items() if n)
    return f"{target}: {_count(len(found), 'regression')} ({told})"


def counts_line(difference: Difference) -> str:
    """How many claims are in each section."""
    counts = {_words(kind): len(difference.of(kind)) for kind in KINDS}
    counts["known"] = len(difference.known)
    counts["to be taken off the known list"] = len(difference.idle)
    waiting = sum(len(change.waiting) for change in difference.changes)
    told = ", ".join(f"{n} {words}" for words, n in counts.items() if n) or "nothing changed"
    return told + (f"; {waiting} more rest on these" if waiting else "")


def differing(difference: Difference) -> str:
    """In what the two checks differ, beside what they found."""
    old, new = about(difference.old), about(difference.new)
    told = [
        f"{name} {_or_unknown(value)} → {_or_unknown(new[name])}"
        for name, value in old.items()
        if value != new[name]
    ]
    same = [name for name, value in old.items() if value == new[name]]
    if not told:
        return f"compared: two checks of the same {_listed(same)}"
    return f"compared: two checks with {', '.join(told)}" + (f"; the same {_listed(same)}" if same else "")


def diff_text(
    difference: Difference, *, width: int = 100, color: bool = False, known_file: str = "the list"
) -> str:
    """The whole comparison for a terminal."""
    paint = painter(color)
    outcome = "red" if difference.regressions else "green"
    lines = [paint(line, outcome) for line in wrapped(headline(difference), width)]
    lines += wrapped(counts_line(difference), width) + wrapped(differing(difference), width)
    for title, changes in _sections(difference):
        lines += ["", paint(f"{title}:", "bold")]
        for group in _grouped(changes):
            lines += _line(group, width)
    if difference.idle:
        lines += ["", f"Take off {clean(known_file, 200)}:"]
        for named, on, why in _idle(difference, clean):
            lines += _hanging(f"– {named} on {clean(on)}: {_cut(why)}", width)
    return "\n".join(lines) + "\n"


def diff_markdown(difference: Difference) -> str:
    """A summary for a comment on a pull request; what a candidate wrote is no markup, and calls nobody."""
    mark = "✗" if difference.regressions else "✓"
    lines = [f"### {mark} {_escaped(headline(difference))}", "", _escaped(counts_line(difference)), ""]
    lines += [_escaped(differing(difference)), ""]
    for title, changes in _sections(difference):
        told = [_bullet(group) for group in _grouped(changes)]
        told = [*told[:MANY], *([f"- and {len(told) - MANY} more"] if len(told) > MANY else [])]
        lines += _section(title, told, any(change.regression for change in changes))
    told = [
        f"- {named} on {_escaped(on)}: {_escaped(_cut(why))}" for named, on, why in _idle(difference, _code)
    ]
    if told:
        lines += _section("Take off the known list", told[:MANY], False)
    return "\n".join(lines)


def diff_json(difference: Difference) -> str:
    """The comparison as JSON: a list of changes for each kind, the known ones apart."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "regression": bool(difference.regressions),
        "old": about(difference.old),
        "new": about(difference.new),
    }
    document |= {kind: [_change(change) for change in difference.of(kind)] for kind in KINDS}
    document["known"] = [
        {**_change(change), "kind": change.kind, "note": change.known.reason}
        for change in difference.known
        if change.known is not None
    ]
    document["idle"] = [
        {"claim": e.claim, "object": e.object, "fingerprint": e.fingerprint, "note": e.reason, "why": why}
        for e, why in difference.idle
    ]
    return json.dumps(finite(document), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _change(change: Change) -> dict[str, Any]:
    before, now = change.before, change.now
    likely = now.failure.likely if now.failure else None
    return {
        "claim": now.claim,
        "object": now.object,
        "level": now.level,
        "regression": change.regression,
        "before": _side(before),
        "now": _side(now),
        "likely": likely.mutant if likely else None,
        "listed_as": change.other.fingerprint if change.other else None,
        "waiting": [{"claim": v.claim, "object": v.object, "level": v.level} for v in change.waiting],
    }


def _side(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    passed = verdict.verdict == "passed"
    said = "" if passed else sentence(verdict)
    return {
        "verdict": verdict.verdict,
        "what": said,
        "fingerprint": None if passed else fingerprint(verdict),
    }


def _sections(difference: Difference) -> list[tuple[str, Sequence[Change]]]:
    """Titles and changes, without empty ones.  Of what passes, only the number is told (in the counts)."""
    shown: list[tuple[str, Sequence[Change]]] = []
    for kind in KINDS:
        found = [c for c in difference.of(kind) if c.now.verdict != "passed" or kind == "fixed"]
        shown.append((TITLES[kind], found))
    shown.append(("Known", difference.known))
    return [(title, changes) for title, changes in shown if changes]


def _grouped(changes: Sequence[Change]) -> list[list[Change]]:
    """Changes that would read the same but for the claim are told in one line."""
    groups: dict[Any, list[Change]] = {}
    for change in changes:
        same = (change.now.level, change.now.object, change.now.verdict, _said(change), _asides(change))
        groups.setdefault(same, []).append(change)
    return list(groups.values())


def _said(change: Change) -> tuple[str, ...]:
    """What happened, in a sentence or in two."""
    now, before = change.now, change.before
    if change.known is not None:
        return (change.known.reason or _sentence(now),)
    if change.kind == "fixed" and before is not None:
        return (f"was: {_sentence(before)}",)
    if change.kind == "failing_otherwise":
        listed = f"listed as {change.other.fingerprint}, this is {fingerprint(now)}" if change.other else ""
        earlier = _sentence(before) if before is not None and before.verdict in BROKEN else ""
        if before is None or fingerprint(before) == fingerprint(now):
            earlier = ""
        sides = (("known list", listed), ("before", earlier), ("now", _sentence(now)))
        return tuple(f"{side}: {said}" for side, said in sides if said)
    return (_sentence(now),)


def _sentence(verdict: Verdict) -> str:
    """What happened, without the name of the object before it: that stands beside it."""
    return sentence(verdict).removeprefix(f"{verdict.object}: ")


def _asides(change: Change) -> tuple[str, ...]:
    """What else is to be said of a change, in a few words each."""
    told = []
    likely = change.now.failure.likely if change.now.failure else None
    if likely is not None:
        told.append(f"likely mistake: {likely.mutant}")
    if change.kind == "newly_failing" and (change.before is None or change.before.verdict == "unsupported"):
        told.append("not judged before")
    if change.kind == "newly_failing" and change.before is not None and change.before.verdict == "blocked":
        told.append(f"before it rested on {change.before.reason.removeprefix(RESTS)}, which was broken")
    if change.kind == "newly_failing" and change.other is not None:
        told.append(
            f"listed as {change.other.fingerprint}, which is another failure than {fingerprint(change.now)}"
        )
    return tuple(told)


def _waiting(group: Sequence[Change]) -> tuple[str, ...]:
    """How many claims rest on those of a line."""
    n, lost = sum(len(change.waiting) for change in group), sum(len(change.lost) for change in group)
    if not n:
        return ()
    if group[0].kind == "fixed":
        return (f"and {_count(n, 'claim')} that rested on it",)
    of_them = f", {lost} of them passed before" if 0 < lost < n else ""
    return (f"{_count(n, 'claim')} that rest{'s' * (n == 1)} on it not tried{of_them}",)


def _line(group: Sequence[Change], width: int) -> list[str]:
    """One line, or as many as two sentences need."""
    change = group[0]
    now, asides = change.now, "; ".join((*_asides(change), *_waiting(group)))
    head = f"{MARKS[now.verdict]} {clean(now.level)} {_claims(group, clean)} on {clean(now.object)}"
    said, aside = [_cut(part) for part in _said(change)], f" ({clean(asides)})" if asides else ""
    if len(said) == 1:
        return _hanging(f"{head}{': ' if said[0] else ''}{said[0]}{aside}", width)
    return [
        *_hanging(head + aside, width),
        *(line for part in said for line in wrapped(part, width, "      ")),
    ]


def _bullet(group: Sequence[Change]) -> str:
    change = group[0]
    said = "; ".join(_cut(part) for part in _said(change))
    aside = "; ".join((*_asides(change), *_waiting(group)))
    told = f"- {MARKS[change.now.verdict]} {clean(change.now.level)} {_claims(group, _code)} on "
    told += _escaped(change.now.object) + (f": {_escaped(said)}" if said else "")
    return told + (f" ({_escaped(aside)})" if aside else "")


def _section(title: str, lines: Sequence[str], is_open: bool) -> list[str]:
    """A section that is folded away unless something in it counts."""
    mark = " open" if is_open else ""
    return [f"<details{mark}><summary>{title}</summary>", "", *lines, "", "</details>", ""]


def _idle(difference: Difference, shown: Callable[[Any], str]) -> list[tuple[str, str, str]]:
    """Claims, object and why, for entries that fit nothing."""
    groups: dict[tuple[str, str], list[str]] = {}
    for entry, why in difference.idle:
        groups.setdefault((entry.object, why), []).append(shown(entry.claim))
    return [(_named(names), on, why) for (on, why), names in groups.items()]


def _claims(group: Sequence[Change], shown: Callable[[Any], str]) -> str:
    return _named([shown(change.now.claim) for change in group])


def _named(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _hanging(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)


def _cut(text: str) -> str:
    text = clean(text)
    return text if len(text) <= LONG else text[: LONG - 1] + "…"


def _escaped(text: Any) -> str:
    """Text that Markdown shows as it is; a name after @ is nobody who is called."""
    return re.sub(r"@(?=\w)", "@<!-- -->", markdown(text))


def _code(text: Any) -> str:
    return "`" + clean(text).replace("`", "'") + "`"


def _words(kind: Kind) -> str:
    words: Mapping[str, str] = {
        "newly_unsupported": "passed before and not judged now",
        "no_longer_judged": "failed before and not judged now",
        "newly_passing": "passing and not judged before",
        "new_claims": "of new claims",
    }
    return words.get(kind, kind.replace("_", " "))


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def _or_unknown(value: Any) -> str:
    return "unknown" if value is None else clean(value, 200)

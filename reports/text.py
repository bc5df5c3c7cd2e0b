"""A report for a terminal: the sentence first, then what failed and why, then the rest in a few lines."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from ..spec import BoundObject, Failure, Likely, Report, Verdict
from .safe import clean, clean_lines

MARKS = {
    "passed": "✓",
    "failed": "✗",
    "errored": "!",
    "inconclusive": "?",
    "blocked": "·",
    "unsupported": "–",
    "suite_fault": "‼",
}
# Conventions that the short form tells; --show-binding and the other formats tell all.
TOLD = (
    "sizes",
    "polarity",
    "layout",
    "result",
    "mask_kind",
    "form",
    "embedding_scale",
    "precision",
    "cache",
    "generation",
    "positions",
)
HEADINGS = {
    "MUST": "Broken",
    "SHOULD": "Advice (does not count against it)",
    "MAY": "For information",
}
LOUD = ("failed", "errored", "inconclusive", "suite_fault")


def headline(report: Report) -> str:
    """The verdict in a sentence."""
    name = clean(report.candidate.get("target", "?"))
    if report.suite_fault:
        return f"{name}: triu itself is at fault; no verdict"
    if report.conforms:
        return f"{name} conforms{_left_out(report)}"
    if not report.provides:
        return f"{name}: nothing could be judged{_why_not(report)}"
    must = [v for v in report.verdicts if v.breaks_conformance and v.verdict != "blocked"]
    if not must:
        return f"{name} does not conform"
    words = {"failed": "broken", "errored": "not answered", "inconclusive": "undecided"}
    kinds = {word: sum(words.get(v.verdict) == word for v in must) for word in words.values()}
    counted = ", ".join(f"{n} claim{'s' * (n > 1)} {word}" for word, n in kinds.items() if n)
    return f"{name} does not conform: {counted}"


def _left_out(report: Report) -> str:
    """The objects with the name of a role that were not judged in any, where there are some."""
    judged = {item.object for item in report.binding if item.judged}
    names = [name for name in dict.fromkeys(i.object for i in report.binding) if name not in judged]
    if not names:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 4 else ""
    return f" in what was judged; not judged: {', '.join(map(clean, names[: 3 if more else 4]))}{more}"


def _why_not(report: Report) -> str:
    """Why most claims on what was found, or all of them, do not concern it."""
    found = [v for v in report.verdicts if v.object != "—"]
    reasons = Counter((v.object if found else "", v.reason) for v in found or report.verdicts)
    if not reasons:
        return ""
    name, reason = reasons.most_common(1)[0][0]
    return f": {_short(f'{name}: {reason}' if name else reason, 300)}"


def counts_line(report: Report) -> str:
    named = {"suite_fault": "suite fault"}
    return (
        ", ".join(f"{n} {named.get(o, o)}" for o, n in report.counts.items() if n) + f"; seed {report.seed}"
    )


def to_text(report: Report, *, width: int = 100, color: bool = False, binding: bool = False) -> str:
    """The whole report as text of at most ``width`` columns."""
    paint = painter(color)
    told = textwrap.wrap(headline(report), width, break_on_hyphens=False)
    lines = [*(paint(line, "green" if report.conforms else "red") for line in told), counts_line(report), ""]
    lines += _binding_full(report, width) if binding else _binding_short(report, width)
    for note in report.notes:
        lines += wrapped(f"note: {clean(note)}", width)
    loud = [v for v in report.verdicts if v.verdict in LOUD]
    told_already: set[tuple[str, str]] = set()  # objects with the mistake that was named for them
    for level, title in HEADINGS.items():
        here = [v for v in loud if v.level == level]
        if here:
            lines += ["", paint(f"{title}:", "bold")]
            for group in grouped(here):
                lines += ["", *_failure(group, width, paint, report, told_already)]
    lines += ["", *_summary(report, width)]
    return "\n".join(lines).rstrip() + "\n"


def painter(color: bool) -> Callable[[str, str], str]:
    """What puts text into a colour by its name, or leaves it as it is."""
    codes = {"green": "32", "red": "31", "bold": "1", "dim": "2"}
    return lambda text, name: f"\x1b[{codes[name]}m{text}\x1b[0m" if color else text


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Lines of at most ``width`` columns; an empty one for no text."""
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    ) or [""]


def _binding_short(report: Report, width: int) -> list[str]:
    judged = [item for item in report.binding if item.judged]
    lines = ["Found:"]
    for item in judged:
        conventions = "; ".join(
            f"{name.replace('_', ' ')} {clean(value)}"
            for name, (value, how) in item.conventions.items()
            if (how == "probed" and name in TOLD and value != "1")
            or how.startswith(("declared", "by its code"))
        )
        polarity = _polarity(item)
        ignored = (
            f"not recognised, left at its default: {clean(', '.join(item.ignored))}" if item.ignored else ""
        )
        told = "; ".join(part for part in (polarity, conventions, ignored) if part)
        lines += textwrap.wrap(
            f"{item.role}: {_short(item.signature)}{'  [' + told + ']' if told else ''}",
            width,
            initial_indent="  ",
            subsequent_indent="      ",
        )
    left_out = [item for item in report.binding if not item.judged]
    for item in left_out:
        lines += wrapped(
            f"not judged: {clean(item.object)} ({item.role}): {clean(item.problem)}", width, "  "
        )
    if any("role's arguments" in item.problem for item in left_out):
        remedy = "to have it judged, declare in triu.toml what its parameters are, or write an adapter"
        lines += wrapped(f"({remedy}: docs/conventions.md)", width, "  ")
    return lines


def _short(text: str, limit: int = 120) -> str:
    text = clean(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _polarity(item: BoundObject) -> str:
    value, how = item.conventions.get("polarity", ("", ""))
    if how not in ("by name", "by its author's words", "by the mask of its attention"):
        return ""
    source = "by its name" if how == "by name" else how
    return {"block": f"True blocks, {source}", "allow": f"True allows, {source}"}.get(value, value)


def _binding_full(report: Report, width: int) -> list[str]:
    rows = []
    for item in report.binding:
        arguments = ", ".join(f"{name} → {clean(p)}" for name, p in item.arguments.items())
        rows.append([item.role, clean(item.signature, 100), "arguments", arguments or "—"])
        if item.ignored:
            rows.append(["", "", "left at default", clean(", ".join(item.ignored))])
        if not item.judged:
            rows.append(["", "", "not judged", clean(item.problem)])
        rows += [["", "", name, f"{clean(value)} ({how})"] for name, (value, how) in item.conventions.items()]
    table = tabulate(
        rows,
        ["role", "object", "", "found"],
        tablefmt="simple",
        maxcolwidths=[22, 34, 18, max(20, width - 82)],
    )
    return ["Binding:", "", *table.split("\n")]


def grouped(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Failures with the same cause on the same object are told once."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        same = verdict.failure.what if verdict.failure and verdict.verdict == "errored" else verdict.claim
        groups.setdefault((verdict.object, same), []).append(verdict)
    return list(groups.values())


def _failure(
    group: Sequence[Verdict], width: int, paint: Any, report: Report, told_already: set[tuple[str, str]]
) -> list[str]:
    """Claim, what happened, smallest case, likely mistake and its correction, code to paste, what waits for it."""
    verdict = group[0]
    failure = verdict.failure or Failure(verdict.reason)
    more = f" (and {len(group) - 1} more claims)" if len(group) > 1 else ""
    lines = textwrap.wrap(
        f"{MARKS[verdict.verdict]} {clean(verdict.object)}: {verdict.title}{more}",
        width,
        subsequent_indent="  ",
    )
    lines[0] = paint(lines[0], "bold")
    lines.append(paint(f"  {verdict.level} {verdict.claim}  {verdict.verdict}", "dim"))
    indent = "    "
    if failure.meant:
        lines += wrapped(clean(failure.meant), width, indent)
    lines += wrapped(clean(failure.what), width, indent)
    if verdict.verdict != "inconclusive":
        lines += [indent + "  " + line for line in side_by_side(failure, width - len(indent) - 2)]
        if failure.case:
            lines += wrapped(f"smallest case: {case_line(failure)}", width, indent)
    advice = failure.hint
    if failure.likely:
        named = (verdict.object, failure.likely.mutant)
        line = likely_line(failure.likely, verdict.object)
        advice = failure.likely.correction
        if named in told_already:
            line, advice = f"likely mistake: the same as above ({failure.likely.mutant})", ""
        told_already.add(named)
        lines += wrapped(line, width, indent)
    if advice:
        lines += textwrap.wrap(f"→ {advice}", width, initial_indent=indent, subsequent_indent=indent + "  ")
    if failure.snippet:
        lines += [
            indent + "reproduce:",
            *(indent + "  " + line for line in clean_lines(failure.snippet).split("\n")),
        ]
    names = waiting(report, verdict)
    if names:
        more = f" and {len(names) - 4} more" if len(names) > 5 else ""
        names = names[:4] if more else names
        lines += wrapped(f"not tried until this is right: {', '.join(names)}{more}", width, indent)
    return lines


def waiting(report: Report, cause: Verdict) -> list[str]:
    """The claims that are blocked by one that does not hold, on the same object."""
    return [
        v.claim
        for v in report.verdicts
        if v.verdict == "blocked"
        and v.object.split(" + ")[0] == cause.object.split(" + ")[0]
        and v.reason == f"rests on {cause.claim}"
    ]


def replay_text(before: Verdict, state: str, now: Failure | None, why: str, width: int = 100) -> str:
    """A stored failure beside what became of it."""
    mark = {"fixed": MARKS["passed"], "still failing": MARKS["failed"]}.get(state, MARKS["errored"])
    lines = wrapped(f"{mark} {clean(before.object)}: {before.title}  ({before.claim}): {state}", width)
    if state == "different" and before.failure is not None:
        lines += wrapped(f"before: {clean(before.failure.what)}", width, "    ")
    if why and now is None:
        lines += wrapped(f"now: {clean(why)}", width, "    ")
    if now is not None:
        lines += wrapped(f"now: {clean(now.what)}", width, "    ")
        lines += ["      " + line for line in side_by_side(now, width - 6)]
    return "\n".join(lines) + "\n"


def case_line(failure: Failure) -> str:
    """The case in a line, as far as it is worth telling."""
    told = ", ".join(f"{name}={clean(failure.case[name])}" for name in failure.told)
    return told or "the smallest that there is"


def likely_line(likely: Likely, name: str) -> str:
    """The known mistake in a sentence, and what supports it."""
    seen = f"seen on {likely.telling} of {likely.cases} cases that tell it from other known mistakes"
    if likely.by == "weights":
        sizes = f"{likely.cases} size" + "s" * (likely.cases > 1)
        seen = f"recomputed with equal weights in {sizes}, and told from other known mistakes"
    if likely.by == "loading":
        seen = f"with its weights that mistake gives the same output for {likely.cases} inputs, and no other does"
    if likely.by == "claims" or not likely.cases:
        seen = "no other known mistake breaks just these claims"
    how = "exactly" if likely.exact else "most"
    told = f"{clean(name)} behaves {how} like this: {likely.misconception}"
    return f"likely mistake: {told} ({seen}; {likely.mutant})"


def failure_text(verdict: Verdict, width: int = 100) -> str:
    """One verdict that did not pass, as in the report."""
    report = Report({}, 0, (), (verdict,), {})
    return "\n".join(_failure([verdict], width, painter(False), report, set()))


def side_by_side(failure: Failure, width: int) -> list[str]:
    """Expected beside observed, what differs in brackets."""
    expected, observed = failure.expected, failure.observed
    if expected is None and observed is None:
        return []
    wrong = failure.wrong or ((failure.index,) if failure.index is not None else ())
    alike = _shape(expected) == _shape(observed)
    left, right = _cells(expected, wrong if alike else ()), _cells(observed, wrong)
    common = max(map(len, (cell for row in (*left, *right) for cell in row)), default=0) if alike else 0
    left, right = _aligned(left, common), _aligned(right, common)
    if len(left) == 1 and len(right) == 1:
        return [f"expected {left[0]}", f"observed {right[0]}"]
    size = max(map(len, [*left, "expected"]))
    if alike and size + 3 + max(map(len, [*right, "observed"])) <= width:
        rows = [f"{'expected':{size}}   observed"]
        return rows + [f"{a:{size}}   {b}".rstrip() for a, b in zip(left, right, strict=True)]
    return ["expected", *("  " + line for line in left), "observed", *("  " + line for line in right)]


def _shape(value: Any) -> tuple[int, ...]:
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return tuple(shape)


def _cells(value: Any, wrong: Sequence[tuple[int, ...]]) -> list[list[str]]:
    """The cells of a matrix, with brackets around what is wrong; any other value is one cell."""
    depth = len(_shape(value))
    if depth == 0:
        return [["—" if value is None else _cell(value)]]
    if depth == 1:
        value, wrong = [value], [(0, place[-1] if place else 0) for place in wrong]
    if depth > 2 or not all(isinstance(row, list) for row in value):
        return [[clean(value, 300)]]
    marked = set(wrong)
    return [
        [
            f"[{_cell(cell)}]" if (i, j) in marked else f"{_cell(cell)}{' ' * bool(marked)}"
            for j, cell in enumerate(row)
        ]
        for i, row in enumerate(value)
    ]


def _aligned(cells: Sequence[Sequence[str]], common: int) -> list[str]:
    """The rows as lines, in columns of one width."""
    size = common or max((len(cell) for row in cells for cell in row), default=0)
    if len(cells) == 1 and len(cells[0]) == 1:
        return [cells[0][0].rstrip()]
    return [" ".join(f"{cell:>{size}}" for cell in row) for row in cells]


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        text = f"{value:.4f}".rstrip("0").rstrip(".") if abs(value) < 1e4 else f"{value:.3g}"
        return "0" if text in ("-0", "") else text if float(text) or not value else f"{value:.2g}"
    return clean(value, 300)


def _summary(report: Report, width: int) -> list[str]:
    lines = []
    passed = [v for v in report.verdicts if v.verdict == "passed"]
    if passed:
        cases = sum(v.evidence.cases for v in passed)
        by_role = _count_by(passed, lambda v: v.role)
        lines += wrapped(
            f"Passed: {len(passed)} ({', '.join(f'{role} {n}' for role, n in by_role.items())}), {cases} cases in all.",
            width,
        )
    missing = [v for v in report.verdicts if v.verdict == "unsupported" and v.object == "—"]
    if missing:
        roles = dict.fromkeys(
            v.reason.removeprefix("it provides no ") for v in missing if v.reason.startswith("it provides")
        )
        simple = [role for role in roles if " and " not in role]
        if simple:
            lines += wrapped(f"Not provided, so not judged: {', '.join(simple)}.", width)
    outside = [v for v in report.verdicts if v.verdict == "unsupported" and v.object != "—"]
    if outside:
        reasons: dict[str, list[str]] = {}
        for verdict in outside:
            reasons.setdefault(f"{clean(verdict.object)}: {clean(verdict.reason)}", []).append(verdict.claim)
        lines.append("Outside of what it does (unsupported):")
        for reason, claims in reasons.items():
            lines += textwrap.wrap(
                f"{reason}: {', '.join(claims)}", width, initial_indent="  ", subsequent_indent="    "
            )
    return lines


def _count_by(verdicts: Iterable[Verdict], key: Any) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for verdict in verdicts:
        counts[key(verdict)] = counts.get(key(verdict), 0) + 1
    return counts

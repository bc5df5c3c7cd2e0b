"""What a student reads about a grade: as Markdown, and as a page of HTML.

Of an item that is hidden only the properties are told, with the kind of error, where it arose, and the likely
mistake: no case, no numbers, and no text that the submission wrote while it saw them.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from tabulate import tabulate

from ..spec import Failure, Grade, ItemScore, Picture, Verdict
from ..spec.grade import ItemStatus
from .markdown import fenced
from .pages import page
from .pictures import Drawn, drawn
from .safe import clean, clean_lines, markdown
from .text import LOUD, MARKS, case_line, likely_line, side_by_side, wrapped

OUTPUT_LIMIT = 4000
STATUS: Mapping[ItemStatus, tuple[str, str]] = {
    "passed": (MARKS["passed"], "passed"),
    "partial": ("◐", "partly right"),
    "failed": (MARKS["failed"], "not right yet"),
    "missing": (MARKS["unsupported"], "not provided"),
    "not judged": (MARKS["inconclusive"], "not judged"),
}
LEVELS = {"MUST": "required", "SHOULD": "recommended", "MAY": "optional"}
WORDS = {
    "failed": "does not hold",
    "errored": "no usable answer",
    "inconclusive": "undecided, does not count",
    "suite_fault": "the test is at fault, does not count",
}
MEANT = "correct if you meant"
TELL = "Tell whoever runs the course; it says nothing about your code."
# What to do about a submission that could not be judged, by the word for how it failed.
ADVICE = {
    "not importable": "Run it from top to bottom in a fresh Python (a notebook: restart and run all), make the error "
    "go away, and hand it in again.",
    "empty": "Hand in the Python file or the notebook itself, or a zip or folder with it inside, and look at what "
    "was uploaded.",
    "unreadable": "Open what you handed in yourself, save it again as UTF-8 text, as a notebook or as a plain zip "
    "without a password, and hand it in again.",
    "time-out": "Look for a loop that does not end, and for training, downloads or waiting for input that starts on "
    'import; put that under if __name__ == "__main__":.',
    "memory": "Look for something that grows without end, and for large arrays that are made on import.",
    "exit": "Remove exit(), quit() and sys.exit(): they end the program that judges your code.",
    "crash": "Run it in a fresh Python and look for what ends it: endless recursion, or a library that crashes.",
    "protocol": "Remove what changes standard input and output, or writes to open files that are not yours.",
    "killed": "It was stopped from outside. Hand it in again; if that does not help, tell whoever runs the course.",
    "grader": TELL,
}
NOTHING_RAN = ("not importable", "empty", "unreadable")  # no case was tried before these


@dataclass(frozen=True)
class Problem:
    """One broken property; what does not apply is empty."""

    mark: str
    title: str
    object: str
    kind: str
    counts: bool
    what: str
    compared: str = ""
    case: str = ""
    meant: str = ""
    likely: str = ""
    advice: str = ""
    snippet: str = ""
    picture: Drawn | None = None


@dataclass(frozen=True)
class Line:
    """One item: its points and status, its broken properties, and remarks on those that were not judged."""

    number: str
    title: str
    score: str
    points: str
    mark: str
    status: ItemStatus
    words: str
    hidden: bool
    problems: tuple[Problem, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """One milestone."""

    number: str
    title: str
    score: str
    points: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Feedback:
    """All that a student sees, free of control characters and not yet escaped for any markup."""

    assignment: str
    submission: str
    graded: bool
    score: str
    points: str
    reason: str
    advice: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...]
    output: str
    withheld: str


def feedback(grade: Grade) -> Feedback:
    """What a student sees of a grade.  The seed is not part of it: it would give the hidden cases away."""
    output, withheld = _output(grade)
    return Feedback(
        assignment=clean(grade.profile[1] or grade.profile[0]),
        submission=clean(grade.submission, 300),
        graded=grade.status == "graded",
        score=number(grade.score),
        points=number(grade.max_score),
        reason=clean(grade.reason),
        advice=ADVICE.get(grade.word, TELL),
        parts=_parts(grade),
        notes=tuple(clean(note) for note in grade.notes),
        output=output,
        withheld=withheld,
    )


def number(points: Decimal) -> str:
    """Points without idle zeros."""
    return f"{points.normalize():f}"


def _output(grade: Grade) -> tuple[str, str]:
    """What the submission printed, or why it is not shown: it may have printed the hidden cases."""
    if not grade.output.strip():
        return "", ""
    items = [scored.item for scored in grade.items] + [item for m in grade.milestones for item in m.items]
    harmless = grade.word in NOTHING_RAN or (items and not any(item.hidden for item in items))
    if not harmless:
        return "", "What it printed is not shown, because some of the cases are hidden."
    cut = "\n… (cut)" if len(grade.output) > OUTPUT_LIMIT else ""
    return clean_lines(grade.output[:OUTPUT_LIMIT].rstrip("\n")) + cut, ""


def _parts(grade: Grade) -> tuple[Part, ...]:
    titles = {milestone.id: milestone.title for milestone in grade.milestones}
    known = (*(v for s in grade.items for v in s.verdicts), *(grade.report.verdicts if grade.report else ()))
    properties = {verdict.claim: clean(verdict.title) for verdict in known}
    told: set[tuple[str, ...]] = set()
    parts = []
    for n, milestone in enumerate(dict.fromkeys([*titles, *(s.item.milestone for s in grade.items)]), 1):
        scored = [s for s in grade.items if s.item.milestone == milestone]
        lines = tuple(_line(f"{n}.{m}", s, grade, properties, told) for m, s in enumerate(scored, 1))
        points = sum((s.item.points for s in scored), Decimal(0))
        title = clean(titles.get(milestone, milestone))
        parts.append(Part(str(n), title, number(grade.score_of(milestone)), number(points), lines))
    return tuple(part for part in parts if part.lines)


def _line(
    place: str, scored: ItemScore, grade: Grade, properties: Mapping[str, str], told: set[tuple[str, ...]]
) -> Line:
    item = scored.item
    problems, repeated = [], []
    for verdict in (*scored.verdicts, *_causes(scored, grade)):
        if verdict.verdict not in LOUD:
            continue
        failure = verdict.failure or Failure(verdict.reason)
        what = _withheld(verdict, failure) if item.hidden else clean(failure.what)
        same = (verdict.object, what if verdict.verdict == "errored" else verdict.claim, str(item.hidden))
        if same in told:
            repeated.append(clean(verdict.title))
            continue
        told.add(same)
        problems.append(problem_of(verdict, failure, what, item.hidden, told))
    mark, words = STATUS[scored.status]
    remarks = [f"The same as above: {_few(repeated)}."] if repeated else []
    return Line(
        place,
        clean(item.title),
        number(scored.score),
        number(item.points),
        mark,
        scored.status,
        words,
        item.hidden,
        tuple(problems),
        (*remarks, *_waiting(scored, properties), *(_outside(scored) if scored.status != "passed" else ())),
    )


def _causes(scored: ItemScore, grade: Grade) -> list[Verdict]:
    """What the item waits for that is part of no item, and would be told nowhere."""
    claimed = {v.claim for s in grade.items for v in s.verdicts}
    awaited = {v.reason.removeprefix("rests on ") for v in scored.verdicts if v.verdict == "blocked"}
    verdicts = grade.report.verdicts if grade.report else ()
    return [v for v in verdicts if v.claim in awaited - claimed]


def problem_of(
    verdict: Verdict, failure: Failure, what: str, hidden: bool, told: set[tuple[str, ...]]
) -> Problem:
    """A verdict that did not pass, for a page; ``told`` holds what was told before, and is added to."""
    title, name = clean(verdict.title), clean(verdict.object)
    kind = f"{LEVELS.get(verdict.level, verdict.level)}, {WORDS[verdict.verdict]}"
    mark, counts = MARKS[verdict.verdict], verdict.verdict in ("failed", "errored")
    if verdict.verdict == "suite_fault":
        return Problem(mark, title, name, kind, counts, f"The test itself went wrong here. {TELL}")
    likely, advice = "", clean(failure.hint)
    if failure.likely is not None:
        line = failure.likely.misconception if hidden else likely_line(failure.likely, verdict.object)
        likely, advice = clean(line).removeprefix("likely mistake: "), clean(failure.likely.correction)
        named = (verdict.object, "mistake", failure.likely.mutant)
        if named in told:
            likely, advice = "the same as above", ""
        told.add(named)
    if hidden:
        return Problem(mark, title, name, kind, counts, what, likely=likely, advice=advice)
    decided = verdict.verdict != "inconclusive"
    return Problem(
        mark,
        title,
        name,
        kind,
        counts,
        what,
        compared="\n".join(side_by_side(failure, 72)) if decided else "",
        case=case_line(failure) if decided and failure.case else "",
        meant=clean(failure.meant).removeprefix(MEANT).lstrip(": "),
        likely=likely,
        advice=advice,
        snippet=clean_lines(failure.snippet),
        picture=_picture(verdict, failure.picture, told) if decided and failure.picture else None,
    )


def _picture(verdict: Verdict, picture: Picture, told: set[tuple[str, ...]]) -> Drawn:
    """The picture, or a word on it where the same one was drawn for this object before."""
    shown = drawn(picture)
    same = (verdict.object, "picture", "".join(panel for _, panel in shown.panels))
    if same in told:
        return Drawn((), "The picture is the same as above.")
    told.add(same)
    return shown


def _withheld(verdict: Verdict, failure: Failure) -> str:
    """What happened on a hidden case, without a word that could have been made from its inputs."""
    if verdict.verdict != "errored":
        return "The case is hidden."
    error = failure.error or {}
    kind, file, line = error.get("type"), error.get("file"), error.get("line")
    if not kind:
        return "No usable answer came back. The case is hidden."
    known = isinstance(getattr(builtins, str(kind), None), type)
    what = f"It raised {kind}" if known else "It raised an error of a type of its own"
    if isinstance(line, int) and 0 < line < 100_000:
        plain = re.fullmatch(r"[\w-]{1,40}\.(py|ipynb)", str(file))
        what += f" ({file}, line {line})" if plain else f" (line {line})"
    return f"{what}. The case is hidden."


def _waiting(scored: ItemScore, properties: Mapping[str, str]) -> Iterable[str]:
    """What was not tried, folded by what it waits for."""
    waiting: dict[str, list[str]] = {}
    for verdict in scored.verdicts:
        if verdict.verdict == "blocked":
            cause = verdict.reason.removeprefix("rests on ")
            waiting.setdefault(properties.get(cause, clean(cause)), []).append(clean(verdict.title))
    for cause, titles in waiting.items():
        yield f"Not tried until “{cause}” is right: {_few(titles)}."


def _outside(scored: ItemScore) -> Iterable[str]:
    """What does not concern the submission, with the reason unless the item is hidden."""
    absent: dict[str, list[str]] = {}
    outside = []
    for verdict in scored.verdicts:
        title, reason = clean(verdict.title), clean(verdict.reason)
        if verdict.verdict != "unsupported":
            continue
        if verdict.object == "—" and reason.startswith("it provides no "):
            absent.setdefault(reason, []).append(title)
        else:
            outside.append(title if scored.item.hidden else f"{title} ({reason})")
    for reason, titles in absent.items():
        yield f"Not judged, because {reason}: {_few(titles)}."
    if outside:
        yield f"Does not concern your code and does not count: {_few(outside)}."


def _few(titles: Iterable[str]) -> str:
    names = list(dict.fromkeys(titles))
    kept = names if len(names) <= 4 else names[:3]
    more = f" and {len(names) - 3} more" if len(names) > 4 else ""
    return "; ".join(kept) + more


def feedback_markdown(grade: Grade) -> str:
    """The feedback as Markdown; nothing in it is taken for markup that a submission wrote."""
    told = feedback(grade)
    lines = [f"# {markdown(told.assignment)}", "", f"Submission: {markdown(told.submission)}", ""]
    if not told.graded:
        lines += ["**Not graded.** This is not 0 points: nothing could be judged.", ""]
        lines += [f"Why: {markdown(told.reason)}", "", f"What to do: {markdown(told.advice)}", ""]
    else:
        lines += [f"**{told.score} of {told.points} points**", ""]
    for part in told.parts:
        lines += [f"## {markdown(part.title)}: {part.score} of {part.points} points", ""]
        rows = [
            [
                line.number,
                markdown(line.title) + " (hidden cases)" * line.hidden,
                f"{line.mark} {line.words}",
                f"{line.score} of {line.points}",
            ]
            for line in part.lines
        ]
        lines += [
            tabulate(rows, ["", "item", "status", "points"], tablefmt="pipe", disable_numparse=True),
            "",
        ]
        for line in part.lines:
            if line.problems or line.remarks:
                lines += [f"### {line.number} {markdown(line.title)}", ""]
            for problem in line.problems:
                lines += _markdown_problem(problem)
            for remark in line.remarks:
                lines += [markdown(remark), ""]
    if told.notes:
        lines += ["## Notes", "", *(f"- {markdown(note)}" for note in told.notes), ""]
    if told.output or told.withheld:
        lines += ["## What it printed", "", fenced(told.output, "text") if told.output else told.withheld, ""]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_problem(problem: Problem) -> list[str]:
    lines = [f"#### {problem.mark} {markdown(problem.object)}: {markdown(problem.title)}", ""]
    lines += [f"*{problem.kind}*", "", markdown(problem.what), ""]
    if problem.compared:
        lines += [fenced(problem.compared, "text"), ""]
    for label, text in labelled(problem):
        lines += [f"**{label}:** {markdown(text)}", ""]
    if problem.snippet:
        lines += ["**Reproduce it:**", "", fenced(problem.snippet, "python"), ""]
    return lines


def labelled(problem: Problem) -> list[tuple[str, str]]:
    """The short texts on a problem that there are, with their labels."""
    texts = (
        ("Smallest case", problem.case),
        ("Correct if you meant", problem.meant),
        ("Likely mistake", problem.likely),
        ("What to do", problem.advice),
    )
    return [(label, text) for label, text in texts if text]


def line_text(line: Line, width: int = 90) -> str:
    """One item with its problems as plain text."""
    lines = [f"{line.mark} {line.words}: {line.score} of {line.points} points"]
    lines += ["The cases of this item are hidden."] * line.hidden
    for problem in line.problems:
        lines += ["", *wrapped(f"{problem.mark} {problem.object}: {problem.title}", width)]
        lines += [f"  {problem.kind}"]
        lines += wrapped(problem.what, width, "  ")
        lines += [f"    {row}" for row in problem.compared.split("\n") if row]
        for label, text in labelled(problem):
            lines += wrapped(f"{label}: {text}", width, "  ")
        if problem.snippet:
            lines += ["  Reproduce it:", *(f"    {row}".rstrip() for row in problem.snippet.split("\n"))]
    for remark in line.remarks:
        lines += ["", *wrapped(remark, width)]
    return "\n".join(lines) + "\n"


def feedback_html(grade: Grade) -> str:
    """The feedback as one page that loads nothing, runs nothing and shows text of the submission as text."""
    return page("feedback.html", told=feedback(grade), labelled=labelled)

"""The grades of a class as one page for its teacher: how it went, what is broken most often, and every student."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from statistics import mean, median
from urllib.parse import quote

from markupsafe import Markup

from ..spec import Failure, Grade, Likely, Milestone, Profile, Verdict
from ..spec.verdict import Outcome
from .feedback import LEVELS, number
from .pages import page
from .safe import clean

BINS = 10  # of the histogram
SLOW_TIMES, SLOW_SECONDS = 3, 5  # the median so many times over, and so much more than it, is slow
SLOWEST = 5
SHOWN = 10  # claims and mistakes that are shown at once
BROKEN = ("failed", "errored")


@dataclass(frozen=True)
class Bin:
    """How many have between ``low`` and ``high`` points; ``high`` itself belongs to the next, but for the last."""

    low: str
    high: str
    count: int


@dataclass(frozen=True)
class Part:
    """A milestone in a class.

    Attributes:
        share: the mean in percent of its points, None where it is worth nothing.
        full: how many have all points.
        absent: how many lack a role that one of its items is about.
    """

    id: str
    title: str
    points: str
    mean: str
    median: str
    share: int | None
    full: int
    absent: int


@dataclass(frozen=True)
class Common:
    """A claim that is broken, or a mistake that is made, by ``count`` students, ``share`` percent of the graded.

    Attributes:
        token: short; selects these students in the table.
        id: of the claim, or of the mutant that makes the mistake.
        title: the claim, or the misconception, in words.
        note: the claim's level, or what to do instead of the mistake.
    """

    token: str
    id: str
    title: str
    note: str
    count: int
    share: int


@dataclass(frozen=True)
class Student:
    """A row of the table; what was not graded has empty cells, not 0."""

    name: str
    link: str
    points: str
    parts: tuple[str, ...]
    status: str
    reason: str
    broken: str
    seconds: str
    tags: str
    outdated: bool


@dataclass(frozen=True)
class Overview:
    """All that the page tells, free of control characters and not yet escaped."""

    assignment: str
    points: str
    graded: int
    ungradable: tuple[tuple[str, int], ...]
    median: str
    low: str
    high: str
    bins: tuple[Bin, ...]
    parts: tuple[Part, ...]
    claims: tuple[Common, ...]
    mistakes: tuple[Common, ...]
    usual_seconds: str
    slow: tuple[Student, ...]
    students: tuple[Student, ...]
    missing: int


def broken_alone(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Of verdicts, what the overview tells: the broken ones, with title, level and likely mistake, and nothing more.

    Equal ones are one object, whichever grade they come from, so that thousands of grades can be kept.
    """
    found = {}
    for v in verdicts:
        if v.verdict in BROKEN:
            likely = v.failure.likely if v.failure else None
            words = (likely.mutant, likely.misconception, likely.correction) if likely else None
            told = (v.claim, v.title, v.role, v.level, v.verdict, words)
            found[told] = _bare(*told)
    return tuple(found.values())


@lru_cache(maxsize=20_000)
def _bare(
    claim: str, title: str, role: str, level: str, outcome: Outcome, words: tuple[str, str, str] | None
) -> Verdict:
    failure = Failure("", likely=Likely(*words, cases=0, telling=0)) if words else None
    return Verdict(claim, title, role, level, "", outcome, failure=failure)


def overview(
    grades: Iterable[Grade], profile: Profile, *, outdated: Collection[str] = (), missing: int = 0
) -> Overview:
    """What a class came to.

    Args:
        grades: whole ones, or with what :func:`broken_alone` keeps of their reports' verdicts.
        outdated: names of those that were graded before a change of submission or request.
        missing: how many submissions have no grade yet.

    Raises ValueError for a grade of another profile.
    """
    ordered = sorted(grades, key=lambda grade: (grade.submission.casefold(), grade.submission))
    for grade in ordered:
        if grade.profile[0] != profile.id:
            raise ValueError(
                f"{clean(grade.submission, 300)} was graded by the profile {grade.profile[0]!r}, "
                f"this overview is for {profile.id!r}: grade it again, or leave it out"
            )
    graded = [grade for grade in ordered if grade.status == "graded"]
    scores = sorted(grade.score for grade in graded)
    words = sorted(clean(grade.word) for grade in ordered if grade.status != "graded")
    claims = {grade.submission: _claims(grade) for grade in graded}
    mistakes = {grade.submission: _mistakes(grade) for grade in graded}
    common_claims, common_mistakes = _common(claims.values(), "c"), _common(mistakes.values(), "m")
    of_claim, of_mistake = (
        {one.id: one.token for one in found} for found in (common_claims, common_mistakes)
    )
    students = {}
    for grade in ordered:
        name = grade.submission
        tags = [
            *(of_claim[c] for c in claims.get(name, ())),
            *(of_mistake[m] for m in mistakes.get(name, ())),
        ]
        students[name] = _student(grade, profile, len(claims.get(name, ())), tags, name in outdated)
    usual = median([grade.seconds for grade in ordered] or [0.0])
    return Overview(
        assignment=clean(profile.title or profile.id),
        points=number(profile.points),
        graded=len(graded),
        ungradable=tuple(Counter(words).items()),
        median=_rounded(median(scores)) if scores else "",
        low=number(scores[0]) if scores else "",
        high=number(scores[-1]) if scores else "",
        bins=_bins(scores, profile.points),
        parts=tuple(_part(milestone, graded) for milestone in profile.milestones) if graded else (),
        claims=common_claims,
        mistakes=common_mistakes,
        usual_seconds=_seconds(usual),
        slow=tuple(students[grade.submission] for grade in _slowest(ordered, usual)),
        students=tuple(students.values()),
        missing=missing,
    )


def _broken(grade: Grade) -> Iterator[Verdict]:
    """Of all claims that were judged, those too that only others rest on."""
    return (v for v in (grade.report.verdicts if grade.report else ()) if v.verdict in BROKEN)


def _claims(grade: Grade) -> dict[str, tuple[str, str]]:
    """The claims that one student breaks, each once, with title and level."""
    return {v.claim: (v.title, LEVELS.get(v.level, v.level)) for v in _broken(grade)}


def _mistakes(grade: Grade) -> dict[str, tuple[str, str]]:
    """The likely mistakes of one student, each once, with what to do instead."""
    likely = (v.failure.likely for v in _broken(grade) if v.failure and v.failure.likely)
    return {found.mutant: (found.misconception, found.correction) for found in likely}


def _common(found: Collection[Mapping[str, tuple[str, str]]], letter: str) -> tuple[Common, ...]:
    """What students have, by how many do, most first; ``found`` has for each student ids with title and note."""
    told = {name: words for one in found for name, words in one.items()}
    counts = Counter(name for one in found for name in one)
    ranked = sorted(told, key=lambda name: (-counts[name], name))
    return tuple(
        Common(
            f"{letter}{n}",
            name,
            clean(told[name][0]),
            clean(told[name][1]),
            counts[name],
            _percent(counts[name], len(found)),
        )
        for n, name in enumerate(ranked, 1)
    )


def _student(grade: Grade, profile: Profile, broken: int, tags: Iterable[str], outdated: bool) -> Student:
    graded = grade.status == "graded"
    return Student(
        name=clean(grade.submission, 300),
        link=f"submissions/{quote(grade.submission, safe='', errors='replace')}/feedback.html",
        points=number(grade.score) if graded else "",
        parts=tuple(number(grade.score_of(m.id)) if graded else "" for m in profile.milestones),
        status="graded" if graded else f"ungradable: {clean(grade.word)}",
        reason="" if graded else clean(grade.reason, 400),
        broken=str(broken) if graded else "",
        seconds=_seconds(grade.seconds),
        tags=" ".join(tags),
        outdated=outdated,
    )


def _part(milestone: Milestone, graded: Sequence[Grade]) -> Part:
    scores = [grade.score_of(milestone.id) for grade in graded]
    return Part(
        id=clean(milestone.id),
        title=clean(milestone.title or milestone.id),
        points=number(milestone.points),
        mean=_rounded(mean(scores)),
        median=_rounded(median(scores)),
        share=_percent(mean(scores), milestone.points) if milestone.points else None,
        full=sum(score >= milestone.points for score in scores),
        absent=sum(
            any(s.status == "missing" and s.item.milestone == milestone.id for s in grade.items)
            for grade in graded
        ),
    )


def _bins(scores: Sequence[Decimal], top: Decimal) -> tuple[Bin, ...]:
    if not scores or not top:
        return ()
    counts = [0] * BINS
    for score in scores:
        counts[min(int(score * BINS / top), BINS - 1)] += 1
    edges = [_rounded(top * n / BINS) for n in range(BINS + 1)]
    return tuple(Bin(edges[n], edges[n + 1], count) for n, count in enumerate(counts))


def _slowest(grades: Sequence[Grade], usual: float) -> list[Grade]:
    """The slowest, of those that took far longer than the median."""
    far = [g for g in grades if g.seconds > SLOW_TIMES * usual and g.seconds > usual + SLOW_SECONDS]
    return sorted(far, key=lambda grade: -grade.seconds)[:SLOWEST]


def _percent(part: Decimal | int, whole: Decimal | int) -> int:
    return int((200 * part + whole) // (2 * whole))


def _rounded(points: Decimal) -> str:
    return number(points.quantize(Decimal("0.01"), ROUND_HALF_UP))


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}"


HEIGHT, ABOVE, BELOW = 130, 40, 24  # of the bars; for what stands above and below them


def histogram(told: Overview) -> Markup:
    """The distribution of points as SVG: bars with their numbers; it takes the width that there is."""
    most = max(found.count for found in told.bins)
    base = ABOVE + HEIGHT
    numbers = "; ".join(f"{b.low} to {b.high}: {b.count}" for b in told.bins)
    parts = [
        '<svg class="histogram" role="img" aria-label="Submissions by points">',
        f"<title>Submissions by points: {Markup.escape(numbers)}</title>",
    ]
    step = 100 / BINS
    for n, found in enumerate(told.bins):
        height = max(round(HEIGHT * found.count / most), 2 * (found.count > 0))
        left, middle, wide, y = n * step + 0.6, (n + 0.5) * step, step - 1.2, base - height
        if found.count:
            parts.append(
                f'<rect class="s6" x="{left:g}%" y="{y}" width="{wide:g}%" height="{height}"/>'
                f'<text class="count" x="{middle:g}%" y="{y - 5}">{found.count}</text>'
            )
    parts.append(f'<line class="base" x1="0" x2="100%" y1="{base}" y2="{base}"/>')
    edges = [*(found.low for found in told.bins), told.bins[-1].high]
    every = 1 if max(map(len, edges)) <= 4 else 2
    for n in range(0, BINS + 1, every):
        side = " start" if n == 0 else " end" if n == BINS else ""
        parts.append(
            f'<text class="axis{side}" x="{n * step:g}%" y="{base + 16}">{Markup.escape(edges[n])}</text>'
        )
    place = float(Decimal(told.median) / Decimal(told.points) * 100)
    side = "end" if place > 60 else "start"
    parts.append(
        f'<line class="median" x1="{place:.1f}%" x2="{place:.1f}%" y1="4" y2="{base}"/>'
        f'<text class="axis {side}" x="{place:.1f}%" y="12" dx="{-6 if side == "end" else 6}">'
        f"median {Markup.escape(told.median)}</text>"
    )
    return Markup("".join([*parts, "</svg>"]))


def overview_html(
    grades: Iterable[Grade], profile: Profile, *, outdated: Collection[str] = (), missing: int = 0
) -> str:
    """The overview as one page that loads nothing and reads well without JavaScript; see :func:`overview`."""
    told = overview(grades, profile, outdated=outdated, missing=missing)
    return page(
        "overview.html",
        script=True,
        told=told,
        picture=histogram(told) if told.bins else "",
        milestones=[clean(m.id) for m in profile.milestones],
        slow_times=SLOW_TIMES,
        shown=SHOWN,
    )

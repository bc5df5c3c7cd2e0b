"""The shape of an assignment and of a grade: what counts for how many points, and what a submission came to.

Points are exact decimals throughout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from .verdict import Report, Verdict

GRADE_FORMAT = 1

GradeStatus = Literal["graded", "ungradable"]
ItemStatus = Literal["passed", "partial", "failed", "missing", "not judged"]


@dataclass(frozen=True)
class Limits:
    """What a submission may use.

    Attributes:
        call_seconds, import_seconds: for one call, and for importing everything.
        total_seconds: for the whole submission; what was not judged by then fails with ``time-out``.
        memory_mb: address space beyond what PyTorch itself takes.
    """

    call_seconds: float = 20.0
    import_seconds: float = 60.0
    total_seconds: float = 600.0
    memory_mb: int = 2048


@dataclass(frozen=True)
class Item:
    """One line of a profile.

    Attributes:
        id: unique in the profile; for columns and for the LMS.
        title: for people.
        milestone: the id of the milestone that it belongs to.
        claims: ids of claims, after patterns were resolved, in the spec's order.
        points: what all of them together are worth; may be 0.
        partial: whether a part of the claims gives a part of the points; otherwise all or nothing.
        hidden: whether students see the property and not the case.
    """

    id: str
    title: str
    milestone: str
    claims: tuple[str, ...]
    points: Decimal
    partial: bool = True
    hidden: bool = False


@dataclass(frozen=True)
class Milestone:
    """A part of an assignment, a column of the gradebook."""

    id: str
    title: str
    items: tuple[Item, ...]

    @property
    def points(self) -> Decimal:
        return sum((item.points for item in self.items), Decimal(0))


@dataclass(frozen=True)
class Profile:
    """An assignment.

    Attributes:
        id: the file's name without its suffix.
        title, text: for people.
        required: roles that a submission must provide; the items on a role that is missing give no points.
        milestones: the parts, in order.
        conventions, roles, arguments: what the assignment fixes, as in ``triu.toml``.
        limits: what a submission may use.
        weights: what a claim of each level counts within its item.
        source: the file.
    """

    id: str
    title: str
    text: str
    required: tuple[str, ...]
    milestones: tuple[Milestone, ...]
    conventions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    arguments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    limits: Limits = Limits()
    weights: Mapping[str, int] = field(default_factory=lambda: {"MUST": 3, "SHOULD": 1, "MAY": 0})
    source: str = ""

    @property
    def items(self) -> tuple[Item, ...]:
        return tuple(item for milestone in self.milestones for item in milestone.items)

    @property
    def points(self) -> Decimal:
        return sum((milestone.points for milestone in self.milestones), Decimal(0))

    @property
    def claims(self) -> tuple[str, ...]:
        """All claims that count, each once, in order."""
        return tuple(dict.fromkeys(claim for item in self.items for claim in item.claims))


@dataclass(frozen=True)
class ItemScore:
    """What a submission got for one item.

    Attributes:
        score: of ``item.points``.
        status: ``passed`` (all that was judged), ``partial``, ``failed`` (nothing), ``missing`` (the role is not
            provided), ``not judged`` (the suite was at fault, or everything lies outside of what it does).
        verdicts: on the item's claims.
    """

    item: Item
    score: Decimal
    status: ItemStatus
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True)
class Grade:
    """What a submission came to.

    Attributes:
        submission: its name, as the folder or file is called.
        profile: id and title of the assignment.
        status: ``ungradable`` is not 0 points: nothing could be judged, and ``reason`` says why, in words.
        word: how it failed: ``not importable``, ``no role``, ``empty``, ``unreadable``, ``time-out``, ``memory``,
            ``exit``, ``crash``, ``protocol``, ``killed``, ``grader``; empty if it was graded.
        items: in the profile's order; empty if ungradable.
        notes: for the student: notebook cells that failed, files that were left out, what was ignored.
        output: what it printed while it was judged, cut short.
        layers: the layers of isolation that were active.
        seconds: how long it took.
        report: everything in detail; None if ungradable.
    """

    submission: str
    profile: tuple[str, str]
    status: GradeStatus
    word: str = ""
    reason: str = ""
    items: tuple[ItemScore, ...] = ()
    max_score: Decimal = Decimal(0)
    notes: tuple[str, ...] = ()
    output: str = ""
    layers: tuple[str, ...] = ()
    seconds: float = 0.0
    seed: int = 0
    report: Report | None = None
    milestones: tuple[Milestone, ...] = ()
    format: int = GRADE_FORMAT
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def score(self) -> Decimal:
        return sum((scored.score for scored in self.items), Decimal(0))

    def score_of(self, milestone: str) -> Decimal:
        """The points for one milestone."""
        return sum((s.score for s in self.items if s.item.milestone == milestone), Decimal(0))

"""The shape of a verdict and of a report: what the engine produces and ``reports`` renders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

Outcome = Literal["passed", "failed", "errored", "inconclusive", "blocked", "unsupported", "suite_fault"]
OUTCOMES: tuple[Outcome, ...] = (
    "passed",
    "failed",
    "errored",
    "inconclusive",
    "blocked",
    "unsupported",
    "suite_fault",
)
REPORT_FORMAT = 3


@dataclass(frozen=True)
class Likely:
    """The known mistake that an object behaves like.

    Attributes:
        mutant: the id of the mutant that makes this mistake.
        misconception, correction: the mistake, and what to do instead, in words.
        cases: how many of the cases on which object and mutants were compared tell this mistake from another
            known one; or, by weights, in how many sizes the layer was recomputed; by loading, on how many inputs
            it was compared with the mistake that has its weights.
        telling: on how many of these the object does what the mutant does.
        by: how it was found: by what both do, by weights, by loading weights, or by the claims that break.
        exact: whether both did the same on all cases.
    """

    mutant: str
    misconception: str
    correction: str
    cases: int
    telling: int
    by: Literal["answers", "weights", "loading", "claims"] = "answers"
    exact: bool = True


@dataclass(frozen=True)
class Picture:
    """Two matrices to be drawn beside each other: what is right, and what was found.

    Attributes:
        kind: ``matrix``; ``leak``, which input moves which output; or ``positions``, rows of an encoding.
        rows, columns: what the two axes count, in words.
        expected: rows of numbers, None where a cell may be anything; None where there is no one right matrix.
        observed: rows of numbers, with ``"nan"`` and ``"inf"`` for what is not finite.
        wrong: the cells that differ, as (row, column) within what is shown.
        start: row and column of the first cell that is shown; ``size``: rows and columns of the whole.
        case: dimensions of the case that it shows, where that is not the smallest.
    """

    kind: Literal["matrix", "leak", "positions"]
    rows: str
    columns: str
    expected: tuple[tuple[Any, ...], ...] | None
    observed: tuple[tuple[Any, ...], ...]
    wrong: tuple[tuple[int, int], ...]
    start: tuple[int, int]
    size: tuple[int, int]
    case: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """Why a claim did not pass, for a person.

    Attributes:
        what: one sentence on what happened.
        expected, observed: the two sides, as nested lists of numbers or as text; None where it does not apply.
        index: the first index at which they differ; wrong: all of them.
        case: the smallest case found, dimension by dimension, with the seed of its arrays; ``triu replay``
            runs it again.
        told: the dimensions worth telling: those that are not as small or as ordinary as can be.
        inputs: the inputs of that case in readable numbers.
        meant: "correct if you meant …: declare it thus", or empty.
        hint: what to do.
        snippet: Python that reproduces it with the candidate and torch or NumPy alone.
        error: for ``errored``: type, message and line in the candidate.
        likely: the known mistake that explains it, where exactly one does.
        picture: the same to be looked at, where it is a matter of matrices; on a larger case, if that fails too.
    """

    what: str
    expected: Any = None
    observed: Any = None
    index: tuple[int, ...] | None = None
    wrong: tuple[tuple[int, ...], ...] = ()
    case: Mapping[str, Any] = field(default_factory=dict)
    told: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    meant: str = ""
    hint: str = ""
    snippet: str = ""
    error: Mapping[str, Any] | None = None
    likely: Likely | None = None
    picture: Picture | None = None


@dataclass(frozen=True)
class Evidence:
    """What was seen for a verdict: how many cases, and each required thing with whether it was seen.

    ``waived`` lists what lies outside the candidate's domain and is therefore not owed.
    """

    cases: int = 0
    seen: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    waived: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What a claim came to for one object of the candidate."""

    claim: str
    title: str
    role: str
    level: str
    object: str
    verdict: Outcome
    evidence: Evidence = field(default_factory=Evidence)
    margin: float | None = None  # largest error seen over error allowed
    reason: str = ""  # why it is blocked, unsupported, inconclusive
    failure: Failure | None = None
    source: tuple[str, ...] = ()  # what the claim is taken from

    @property
    def breaks_conformance(self) -> bool:
        return self.level == "MUST" and self.verdict in ("failed", "errored", "inconclusive", "blocked")


@dataclass(frozen=True)
class BoundObject:
    """One object of the candidate and the role it fills, with each convention and where it comes from."""

    role: str
    object: str
    signature: str
    arguments: Mapping[str, str]
    conventions: Mapping[
        str, tuple[str, str]
    ]  # name -> (value, "probed" | "by name" | "default" | "declared")
    judged: bool = True
    problem: str = ""
    ignored: tuple[str, ...] = ()  # parameters that were not recognised and stay at their defaults
    file: str = ""  # where it is defined, relative to the current folder, and on which line; 0 if unknown
    line: int = 0


@dataclass(frozen=True)
class Report:
    """Everything that one check found."""

    candidate: Mapping[str, Any]
    seed: int
    binding: tuple[BoundObject, ...]
    verdicts: tuple[Verdict, ...]
    environment: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    format: int = REPORT_FORMAT

    @property
    def counts(self) -> dict[str, int]:
        return {outcome: sum(v.verdict == outcome for v in self.verdicts) for outcome in OUTCOMES}

    @property
    def provides(self) -> tuple[str, ...]:
        """Roles on which at least one claim came to a verdict of its own."""
        judged = dict.fromkeys(v.role for v in self.verdicts if v.verdict != "unsupported")
        return tuple(judged)

    @property
    def conforms(self) -> bool:
        """At least one role is provided, and every MUST claim on what is provided passed."""
        return (
            bool(self.provides)
            and not self.suite_fault
            and not any(v.breaks_conformance for v in self.verdicts)
        )

    @property
    def suite_fault(self) -> bool:
        return any(v.verdict == "suite_fault" for v in self.verdicts)

    # Who can render a report puts the way here; notebooks ask for it.
    render_html: ClassVar[Callable[[Report], str] | None] = None

    def _repr_html_(self) -> str | None:
        render = type(self).render_html
        return None if render is None else render(self)

    def __repr__(self) -> str:
        state = "conforms" if self.conforms else "does not conform" if self.provides else "nothing judged"
        found = ", ".join(f"{n} {outcome}" for outcome, n in self.counts.items() if n)
        broken = [
            f"  {v.level:6} {v.verdict:12} {v.claim} ({v.object}): {v.failure.what if v.failure else v.reason}"
            for v in self.verdicts
            if v.verdict in ("failed", "errored", "inconclusive", "suite_fault")
        ]
        head = f"<triu report: {self.candidate.get('target', '?')} {state}; {found}; seed {self.seed}>"
        return "\n".join((head, *broken[:12], *(["  …"] if len(broken) > 12 else [])))

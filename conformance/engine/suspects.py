"""The mutants that may explain a broken object: those that, by the committed kills, break what it breaks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ...reference.mutants import Mutant, load_kills, load_mutants, load_shown
from ...spec import Spec
from ..candidates.opening import open_candidate
from ..candidates.session import open_session
from ..candidates.subject import Subject
from ..candidates.target import locate
from .cases import Case

SUSPECTS = 10  # of the nearest mutants, by the claims that break on them


@dataclass
class Suspect:
    """A mutant that may explain an object, as far as it was compared.

    ``compared`` has a row for each case: the claim, the case, whether the object breaks the claim there, and
    whether the mutant does the same; ``takes_more``: it has an argument that the object has not.
    """

    mutant: Mutant
    subject: Subject
    killers: frozenset[str]
    takes_more: bool = False
    compared: list[tuple[str, Case, bool, bool]] = field(default_factory=list)

    def of(self, claims: Collection[str]) -> float:
        """In which part of these claims it does otherwise, each by the part of its cases; 0 to 1."""
        return sum(self._otherwise(claim) for claim in claims) / len(claims)

    def distance(self, broken: Collection[str], asked: Collection[tuple[str, Case]]) -> float:
        """The number of claims in which it does otherwise.

        The broken ones together count as two; one that does not concern it, though others, as a tenth.
        """
        rest = {claim for claim, _ in asked}.difference(broken)
        return (
            2 * self.of(broken) + 0.1 * self.takes_more + sum(self._otherwise(claim, 0.1) for claim in rest)
        )

    def explains(self, broken: Collection[str]) -> set[str]:
        """The broken claims that it breaks in the same way in some case."""
        return {claim for claim, _, broke, same in self.compared if broke and same and claim in broken}

    def alike(self) -> int:
        """In how many cases it breaks a claim as the object does."""
        return sum(broke and same for _, _, broke, same in self.compared)

    def against(self) -> int:
        """In how many cases it breaks a claim that the object holds."""
        return sum(not broke and not same for _, _, broke, same in self.compared)

    def agreement(self) -> dict[tuple[str, Case], bool]:
        """For each case whether it does the same."""
        return {row[:2]: row[3] for row in self.compared}

    def _otherwise(self, claim: str, unasked: float = 0.25) -> float:
        same = [row[3] for row in self.compared if row[0] == claim]
        return 1 - sum(same) / len(same) if same else unasked


class Suspects:
    """The mutants of each role, opened in this process when they are first needed."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._opened: dict[str, Subject | None] = {}
        self.without = ""  # a mutant that is not known, to measure what is said of mistakes that none has

    def likeliest(
        self, role: str, broken: Collection[str], held: Collection[str], outside: Collection[str]
    ) -> list[Suspect]:
        """The mutants of a role that break the claims that are broken, and few of those that hold.

        One whose own claim lies outside of what the object does is none of them.
        """
        ranked = [
            (3 * len(set(broken) - killers) + len(killers.intersection(held)), mutant)
            for mutant in self._of(role)
            if mutant.claim not in outside and not (killers := self.killers(mutant.id)).isdisjoint(broken)
        ]
        ranked.sort(key=lambda row: row[0])
        return self._suspects([mutant for _, mutant in ranked[:SUSPECTS]], role)

    def stuck(self, role: str) -> list[Suspect]:
        """The mutants of a role of which no call succeeds."""
        found = self._suspects([m for m in self._of(role) if m.claim.endswith(".shape")], role)
        return [suspect for suspect in found if suspect.subject.problem]

    def shown(self, role: str) -> dict[str, set[str]]:
        """Which claims a report shows as broken for each mutant of a role."""
        shown = load_shown()
        return {m.id: set(shown[m.id]) for m in self._of(role) if m.id in shown}

    @staticmethod
    def killers(mutant: str) -> frozenset[str]:
        """The claims that break on a mutant ("id|place" of one in a part)."""
        return load_kills().get(mutant.partition("|")[0], frozenset())

    def forget(self) -> None:
        """Drop what the mutants answered: the next candidate asks them other things.

        Among it are errors, and with them all that was alive where they were met.
        """
        for subject in self._opened.values():
            if subject is not None:
                subject.remembered.clear()
                subject.session.log.clear()
                getattr(subject, "matches", {}).clear()

    def _of(self, role: str) -> list[Mutant]:
        claims = self._spec.claims
        return [
            m
            for m in load_mutants().values()
            if m.claim in claims and claims[m.claim].role == role and m.id != self.without
        ]

    def _suspects(self, mutants: Collection[Mutant], role: str) -> list[Suspect]:
        for mutant in mutants:
            mutant.begin_anew()
        found = ((mutant, self._subject(mutant, role)) for mutant in mutants)
        return [Suspect(m, subject, self.killers(m.id)) for m, subject in found if subject is not None]

    def _subject(self, mutant: Mutant, role: str) -> Subject | None:
        """The object that shows the mutant's bug."""
        if mutant.id not in self._opened:
            target = locate(f"mutant:{mutant.id}")
            opened = open_candidate(open_session(target, in_process=True), self._spec)
            found = (s for s in opened.filling(role) if s.binding.name == mutant.objects[0])
            self._opened[mutant.id] = next(found, None)
        return self._opened[mutant.id]


_opened: list[tuple[Spec, Suspects]] = []


def suspects_of(spec: Spec) -> Suspects:
    """The mutants for a spec; opened once in this process, however many candidates are checked."""
    for known, suspects in _opened:
        if known is spec:
            return suspects
    _opened.append((spec, Suspects(spec)))
    return _opened[-1][1]

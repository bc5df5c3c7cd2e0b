"""The mutants that may explain a broken object: those that, by the committed kills, break what it breaks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ...reference.mutants import Mutant, load_kills, load_mutants
from ...spec import Spec
from ..candidates.opening import open_candidate
from ..candidates.session import open_session
from ..candidates.subject import Subject
from ..candidates.target import locate

SUSPECTS = 10  # of the nearest mutants, by the claims that break on them


@dataclass
class Suspect:
    """A mutant that may explain an object, as far as it was compared."""

    mutant: Mutant
    subject: Subject
    killers: frozenset[str]
    alive: bool = True  # the same on every case so far
    near: bool = True  # the same on every case of what is broken
    cases: int = 0
    telling: int = 0
    explains: set[str] = field(default_factory=set)


class Suspects:
    """The mutants of each role, opened in this process when they are first needed."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._opened: dict[str, Subject | None] = {}

    def likeliest(
        self, role: str, broken: Collection[str], held: Collection[str], outside: Collection[str]
    ) -> list[Suspect]:
        """The mutants of a role that break the claims that are broken, and few of those that hold.

        One whose own claim lies outside of what the object does is none of them.
        """
        kills = load_kills()
        ranked: list[tuple[int, Mutant, frozenset[str]]] = []
        for mutant in load_mutants().values():
            claim, killers = self._spec.claims.get(mutant.claim), kills.get(mutant.id, frozenset())
            if claim is None or mutant.claim in outside:
                continue
            if claim.role == role and not killers.isdisjoint(broken):
                off = 3 * len(set(broken) - killers) + len(killers.intersection(held))
                ranked.append((off, mutant, killers))
        ranked.sort(key=lambda row: row[0])
        found = ((mutant, self._subject(mutant, role), killers) for _, mutant, killers in ranked[:SUSPECTS])
        return [Suspect(m, subject, killers) for m, subject, killers in found if subject is not None]

    def special(self, role: str, claim: str) -> bool:
        """Whether some mutant of the role leaves the claim alone: breaking it tells others from that one."""
        kills = load_kills()
        return any(
            self._spec.claims[m.claim].role == role and claim not in kills[m.id]
            for m in load_mutants().values()
            if m.claim in self._spec.claims and m.id in kills
        )

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

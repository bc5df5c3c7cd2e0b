"""Which known mistake a broken object makes: it is compared with the mutants, on the very cases that it breaks.

A mutant explains an object if on every case on which both can be asked, it breaks the claims that the object
breaks, in the same words, and holds those that it holds; and where answers can be compared (no weights, no
chance), gives the same answers wherever the object departs.  It is named only if every other suspect is told apart
from the object by some case.  Otherwise nothing is said.  Layers are named by their weights (``naming.py``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from ...spec import Claim, Likely, Verdict
from ..candidates.errors import CallFailed
from ..candidates.subject import Subject
from . import draw
from .cases import Case, Inputs, OutOfDomain, Unseen
from .likeness import answer, pattern, same
from .naming import FATAL, RECOMPUTING, alike, by_weights, is_own, recomputing
from .run import Broken, Engine, Run, unsupported
from .suspects import Suspect, Suspects

NEAR = 4  # with so many equal answers where it departs, an object may differ where it does not
BROKEN_CASES = 9  # of each broken claim
OTHER_CASES = 3  # of each other claim of the role
COMPARED_BY_ALL = 16  # cases on which all suspects are compared; then those that are told apart drop out


@dataclass(frozen=True)
class Seen:
    """What an object did with one case of a claim."""

    broke: str  # how, without numbers and names; empty if the claim held
    asked: tuple[Inputs, ...]


@dataclass(frozen=True)
class Diagnosis:
    """The known mistake, and the claims that it explains."""

    likely: Likely
    explains: frozenset[str]


class Doctor:
    """Compares broken objects of one candidate with the mutants."""

    def __init__(self, engine: Engine, suspects: Suspects) -> None:
        self.engine, self.suspects = engine, suspects

    def explained(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """The verdicts, with the known mistake in those failures that it explains."""
        found: dict[str, Diagnosis] = {}
        for subject in self.engine.candidate.subjects:
            name = subject.binding.name
            own = [v for v in verdicts if v.object == name and self._is_of(v, subject)]
            broken = [v.claim for v in own if v.verdict in ("failed", "errored") and v.failure]
            held = [v.claim for v in own if v.verdict == "passed"]
            outside = {v.claim for v in own if v.verdict == "unsupported"}
            diagnosis = self.diagnose(subject, broken, held, outside) if broken else None
            if diagnosis is not None:
                found[name] = diagnosis
        return [self._with(verdict, found.get(verdict.object)) for verdict in verdicts]

    def _is_of(self, verdict: Verdict, subject: Subject) -> bool:
        claim = self.engine.spec.claims[verdict.claim]
        return claim.role == subject.role.id and not claim.partners

    @staticmethod
    def _with(verdict: Verdict, found: Diagnosis | None) -> Verdict:
        if found is None or verdict.failure is None or verdict.claim not in found.explains:
            return verdict
        return replace(verdict, failure=replace(verdict.failure, likely=found.likely))

    def diagnose(
        self, subject: Subject, broken: Sequence[str], held: Collection[str], outside: Collection[str] = ()
    ) -> Diagnosis | None:
        """The one known mistake that explains the broken claims (the MUST ones, if there are any)."""
        spec = self.engine.spec
        if subject.problem:
            return None
        must = [c for c in broken if spec.claims[c].level == "MUST"]
        broken = [c for c in must or broken if self._case_of(c, subject) is not None]
        if not broken:
            return None
        weighed = by_weights(self.engine, subject, broken)
        if isinstance(weighed, Broken) and weighed.kind in FATAL:
            return None
        if isinstance(weighed, Likely) and is_own(self.engine, weighed.mutant, subject):
            return Diagnosis(weighed, frozenset(broken))
        suspects = self.suspects.likeliest(subject.role.id, broken, held, outside)
        by_answers = self._by_answers(subject, suspects, broken, held, bool(must), weighed)
        if by_answers is None and isinstance(weighed, Likely):
            return Diagnosis(weighed, frozenset(broken))
        return by_answers

    def _by_answers(
        self,
        subject: Subject,
        suspects: Sequence[Suspect],
        broken: Sequence[str],
        held: Collection[str],
        must: bool,
        weighed: Likely | Broken | None,
    ) -> Diagnosis | None:
        """The mutant of the role that does the same on every case, and is told apart from all others."""
        erratic = any(self.engine.spec.claims[c].property_name == "repeatable" for c in broken)
        compared = 0
        for claim, case in self._cases(subject, broken, must):
            own = self._see(subject, claim, case)
            if own is None:
                continue
            if own.broke in FATAL:
                return None
            if erratic and own.broke != getattr(self._see(subject, claim, case), "broke", None):
                continue  # what it does here is chance
            compared += 1
            agree: list[Suspect] = []
            told = bool(own.broke) and claim.id in broken and self.suspects.special(claim.role, claim.id)
            for suspect in suspects:
                if not suspect.alive and compared > COMPARED_BY_ALL:
                    continue
                seen = self._see(suspect.subject, claim, case)
                if seen is None:
                    continue
                if seen.broke != own.broke or (own.broke and not self._same_answers(subject, suspect, own)):
                    suspect.alive, told = False, True
                    suspect.near = suspect.near and claim.id not in broken
                    continue
                agree.append(suspect)
                if own.broke and claim.id in broken:
                    suspect.explains.add(claim.id)
            for suspect in agree:
                suspect.cases += 1
                suspect.telling += told
            if not any(s.alive or s.near for s in suspects):
                return None

        left = [s for s in suspects if s.alive and s.explains]
        if not left and subject.told_by_answers and not subject.answers_by_chance:
            # A choice of its own, where nothing is wrong, may set it apart.
            left = [s for s in suspects if s.near and s.explains and s.cases >= NEAR]
        consistent = [s for s in left if s.killers.isdisjoint(held)]
        left = consistent if len(consistent) == 1 else left
        if len(left) != 1:
            return None
        (named,) = left
        if not isinstance(weighed, Likely) and recomputing(self.engine, subject.role.id):
            other = by_weights(self.engine, named.subject)
            if isinstance(other, Likely) or not alike(weighed, other):
                return None
        mutant = named.mutant
        likely = Likely(mutant.id, mutant.misconception, mutant.correction, named.cases, named.telling)
        return Diagnosis(likely, frozenset(named.explains)) if named.telling else None

    def _cases(self, subject: Subject, broken: Sequence[str], must: bool) -> Iterator[tuple[Claim, Case]]:
        """Cases of the broken claims by turns, the smallest first; then some of all others of the role."""
        spec, engine = self.engine.spec, self.engine
        role = [c for c in spec.claims.values() if c.role == subject.role.id and not c.partners]
        streams: list[list[tuple[Claim, Case]]] = []
        others: list[list[tuple[Claim, Case]]] = []
        for claim in role:
            if unsupported(claim, subject) or (must and claim.level != "MUST"):
                continue
            if claim.property_name in RECOMPUTING:
                continue
            choices = Run(engine, claim, subject, (), "", plain=True).choices
            if choices is None:
                continue
            drawn = draw.stream(choices, claim.requires, engine.examples, engine.seed)
            first = self._case_of(claim.id, subject)
            if claim.id in broken and first is not None:
                cases = dict.fromkeys((first, *drawn))
                streams.append([(claim, case) for case in cases][:BROKEN_CASES])
            else:
                others.append([(claim, case) for case in drawn[:OTHER_CASES]])
        for group in (streams, others):
            for turn in zip_longest(*group):
                yield from (pair for pair in turn if pair is not None)

    def _case_of(self, claim: str, subject: Subject) -> Case | None:
        """The smallest case that broke the claim; None where it cannot be tried again."""
        return self.engine.failing.get((claim, subject.binding.path))

    def _see(self, subject: Subject, claim: Claim, case: Case) -> Seen | None:
        """What an object does with a case; None if the case does not concern it."""
        if subject.problem or unsupported(claim, subject):
            return None
        run = Run(self.engine, claim, subject, (), "", plain=True)
        if run.choices is None or any(case[n] not in values for n, values in run.choices.items()):
            return None
        subject.asked = []
        try:
            broken, done = run.attempt(case)
        except (OutOfDomain, Unseen):
            return None
        finally:
            asked, subject.asked = tuple(subject.asked), None
        if broken is None:
            return Seen("", asked) if done else None
        if isinstance(broken.error, CallFailed):
            return Seen(broken.kind, asked)
        if claim.property_name == "repeatable":
            return Seen("not repeatable", asked)
        told = pattern(broken.error.what)
        return Seen(re.sub(r"\d+", "#", told) if subject.told_by_answers else told, asked)

    @staticmethod
    def _same_answers(subject: Subject, suspect: Suspect, seen: Seen) -> bool:
        """Whether the mutant answers as the object did, where answers can be compared."""
        if not subject.told_by_answers:
            return True
        for inputs in seen.asked:
            own, other = answer(subject, inputs), answer(suspect.subject, inputs)
            close = subject.closeness(inputs)
            if own is None or other is None or same(own, other, close):
                continue
            if same(answer(subject, inputs, fresh=True), own, close):
                return False  # otherwise it does not answer twice alike, and nothing can be compared
        return True

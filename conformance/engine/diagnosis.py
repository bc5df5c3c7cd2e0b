"""Which known mistake a broken object makes: it is compared with the mutants, on the very cases that it breaks.

On each case of each claim of the role a mutant does the same as the object, or otherwise: it breaks the claim in
the same words, or holds it too; and where answers can be compared (no weights, no chance), gives the same answer
where the object breaks it.  The mutant that does the same in the most claims is named, if it is near enough and
no other is as near.  Otherwise nothing is said.  Layers are named by their weights first (``naming.py``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from ...reference.mutants import load_mutants
from ...spec import Claim, Likely, Verdict
from ..candidates.errors import FATAL, CallFailed
from ..candidates.subject import Subject
from . import draw
from .cases import Case, Inputs, OutOfDomain, Unseen
from .likeness import answer, complaint, drawn_alike, pattern, same
from .naming import RECOMPUTING, by_weights, is_own, recomputing
from .run import Broken, Engine, Run, unsupported
from .suspects import Suspect, Suspects

BROKEN_CASES = 9  # of each broken claim
OTHER_CASES = 3  # of each other claim of the role
UNLIKE = 0.5  # of the broken claims, in which the nearest mutant may do otherwise
FAR = 3.5  # claims in all in which it may do otherwise, the broken ones together counted as two
NEAR = 0.2  # the same, where its weights say that a layer makes another mistake
APART = 0.05  # by how many claims the next mutant must be farther away
RECOMPUTED = 4  # mutants at most that are recomputed to tell them apart: each takes a second
BY_VARIETY = ("draws_differ", "rows_drawn_apart")  # properties of draws that have no right value
# What may be built of what stands before it.
LEVELS = (
    ("attention", "causal_attention", "causal_mask", "padding_mask", "positional_encoding"),
    ("multihead_attention", "causal_self_attention", "cross_attention", "feed_forward", "layer_norm"),
    ("encoder_block", "decoder_block", "decoder_only_block", "cached_attention"),
    ("decoder_stack",),
    ("encoder_decoder", "language_model"),
)
NAN_DRAWN = re.compile(r"probabilit(y tensor|ies) contain", re.IGNORECASE)  # as torch and NumPy say it
NAN_HINT = (
    "NaN or infinity reaches the draw. Look at what makes it: the axis of the softmax, which is the last one, "
    "a row of logits that are all -inf, a division by 0."
)
PATH = re.compile(r"^with …=(True|False), ")  # which of two paths of generation breaks


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


def _level(subject: Subject) -> int:
    """How many kinds of parts it may be built of; none of what is no layer."""
    return next((n for n, roles in enumerate(LEVELS) if subject.role.id in roles), 0)


class Doctor:
    """Compares broken objects of one candidate with the mutants."""

    def __init__(self, engine: Engine, suspects: Suspects) -> None:
        self.engine, self.suspects = engine, suspects

    def explained(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """The verdicts, with the known mistake in those failures that it explains."""
        found: dict[tuple[str, str], Diagnosis] = {}
        for subject in sorted(self.engine.candidate.subjects, key=_level):
            name = subject.binding.name
            own = [v for v in verdicts if v.object == name and self._is_of(v, subject)]
            broken = [v.claim for v in own if v.verdict in ("failed", "errored") and v.failure]
            held = [v.claim for v in own if v.verdict == "passed"]
            outside = {v.claim for v in own if v.verdict == "unsupported"}
            diagnosis = self.diagnose(subject, broken, held, outside) if broken else None
            if diagnosis is not None and not self._may_be_a_part(subject, diagnosis.likely, found):
                found[subject.role.id, name] = diagnosis
        roles = {claim.id: claim.role for claim in self.engine.spec.claims.values()}
        return [self._with(v, found.get((roles[v.claim], v.object))) for v in verdicts]

    def _may_be_a_part(
        self, whole: Subject, likely: Likely, found: Mapping[tuple[str, str], Diagnosis]
    ) -> bool:
        """Whether a mistake that was only guessed may as well be that of a part, which fails by itself.

        A likeness to another mistake counts for nothing then, nor does an exact one where the part's is known.
        """
        if likely.by in ("weights", "loading"):
            return False
        parts = [s for s in self.engine.candidate.subjects if _level(s) < _level(whole) and self._fails(s)]
        own = [found.get((part.role.id, part.binding.name)) for part in parts]
        return bool(parts) and not (likely.exact and not any(d and d.likely.exact for d in own))

    def _fails(self, part: Subject) -> bool:
        """Whether a claim that counts is broken, and not in a lower precision alone."""
        broken = [
            verdict
            for verdict in self.engine.known(part)
            if verdict.verdict in ("failed", "errored")
            and verdict.level == "MUST"
            and self._is_of(verdict, part)
        ]
        cases = [self._case_of(verdict.claim, part) or {} for verdict in broken]
        return any(case.get("dtype", "float64") == "float64" for case in cases)

    def _is_of(self, verdict: Verdict, subject: Subject) -> bool:
        claim = self.engine.spec.claims[verdict.claim]
        return claim.role == subject.role.id and not claim.partners

    @staticmethod
    def _with(verdict: Verdict, found: Diagnosis | None) -> Verdict:
        if verdict.failure is not None and NAN_DRAWN.search(verdict.failure.what):
            verdict = replace(verdict, failure=replace(verdict.failure, hint=NAN_HINT))
        if found is None or verdict.failure is None or verdict.claim not in found.explains:
            return verdict
        return replace(verdict, failure=replace(verdict.failure, likely=found.likely))

    def diagnose(
        self, subject: Subject, broken: Sequence[str], held: Collection[str], outside: Collection[str] = ()
    ) -> Diagnosis | None:
        """The one known mistake that explains the broken claims (the MUST ones, if there are any)."""
        if subject.problem:
            return self._by_complaint(subject, broken)
        every = broken
        spec = self.engine.spec
        erratic = any(spec.claims[c].property_name == "repeatable" for c in broken)
        must = [c for c in broken if spec.claims[c].level == "MUST"]
        broken = [c for c in must or broken if self._case_of(c, subject) is not None]
        if not broken:
            return self._by_claims(subject, every)
        weighed = by_weights(self.engine, subject, broken)
        if isinstance(weighed, Broken) and weighed.kind in FATAL:
            return None
        if not isinstance(weighed, Likely):
            return self._nearest(subject, broken, held, outside, bool(must), erratic)
        likely = Diagnosis(weighed, frozenset(broken))
        if weighed.by == "weights":
            told = {c for c in broken if spec.claims[c].property_name in RECOMPUTING}
            if is_own(self.engine, weighed.mutant, subject):
                explained = told | self.suspects.killers(weighed.mutant).intersection(broken)
                likely = Diagnosis(weighed, frozenset(explained))
                if told or explained.issuperset(broken):
                    return likely
            elif told:  # what else a mistake in a part breaks is not known
                likely = Diagnosis(weighed, frozenset(told))
        return self._nearest(subject, broken, held, outside, bool(must), erratic, NEAR) or likely

    def _by_complaint(self, subject: Subject, broken: Sequence[str]) -> Diagnosis | None:
        """Where no call succeeds: the one mutant on which none does for the same reason."""
        own = complaint(subject.problem)
        alike = [
            suspect.mutant
            for suspect in (self.suspects.stuck(subject.role.id) if own else ())
            if complaint(suspect.subject.problem) == own
        ]
        if len(alike) != 1:
            return None
        (mutant,) = alike
        likely = Likely(mutant.id, mutant.misconception, mutant.correction, 1, 1)
        return Diagnosis(likely, frozenset(broken))

    def _by_claims(self, subject: Subject, broken: Sequence[str]) -> Diagnosis | None:
        """Where no case can be tried again: the one mutant on which just these claims break.

        It must break what asks for the same answer twice, as the object does, which no case breaks again.
        """
        alike = [
            name
            for name, shown in self.suspects.shown(subject.role.id).items()
            if shown == set(broken) and any(c.endswith(".repeatable") for c in self.suspects.killers(name))
        ]
        if len(alike) != 1:
            return None
        mutant = load_mutants()[alike[0]]
        return Diagnosis(
            Likely(mutant.id, mutant.misconception, mutant.correction, 0, 0, "claims"), frozenset(broken)
        )

    def _nearest(
        self,
        subject: Subject,
        broken: Sequence[str],
        held: Collection[str],
        outside: Collection[str],
        must: bool,
        erratic: bool,
        far: float = FAR,
    ) -> Diagnosis | None:
        """The mutant of the role that does most nearly the same, if it is near enough and alone there."""
        recomputed = {c.id for c in recomputing(self.engine, subject.role.id)}
        taken = subject.binding.arguments.keys()
        suspects = [
            suspect
            for suspect in self.suspects.likeliest(subject.role.id, broken, held, outside)
            if not suspect.subject.problem
            and (erratic or recomputed.isdisjoint(suspect.killers.intersection(held)))
        ]
        for suspect in suspects:
            suspect.takes_more = bool(suspect.subject.binding.arguments.keys() - taken)
        every = suspects
        suspects = self._compared(subject, suspects, broken, must, erratic)
        if not suspects:
            return None
        asked = {row[:2] for suspect in suspects for row in suspect.compared}
        ranked = sorted(suspects, key=lambda suspect: suspect.distance(broken, asked))
        for name in recomputed.intersection(broken):
            # Here the sentence tells much, and takes long: for those that are near alone.
            claim, case = self.engine.spec.claims[name], self._case_of(name, subject)
            own = self._see(subject, claim, case) if case is not None else None
            if case is not None and own is not None:
                nearest = ranked[0].distance(broken, asked) + 0.5
                near = [s for s in ranked if s.distance(broken, asked) <= nearest][:RECOMPUTED]
                self._compare(subject, near, claim, case, own)
                asked.add((name, case))
        first, *rest = sorted(ranked, key=lambda suspect: suspect.distance(broken, asked))
        away, explains = first.distance(broken, asked), first.explains(broken)
        if first.of(broken) > UNLIKE or away > far or not explains:
            return None
        if rest and rest[0].distance(broken, asked) - away < APART:
            return None
        if not subject.told_by_answers and not self._bears_out(subject, first, explains):
            return None
        others = [suspect for suspect in every if suspect is not first]
        seen = [other.agreement() for other in others]
        telling = [
            same for pair, same in first.agreement().items() if any(o.get(pair, same) != same for o in seen)
        ]
        if not subject.told_by_answers and len(telling) == 1 and not self._told_by_breaking(first, seen):
            return None
        mutant, same = first.mutant, [row[3] for row in first.compared]
        likely = Likely(
            mutant.id, mutant.misconception, mutant.correction, len(telling), sum(telling), exact=all(same)
        )
        return Diagnosis(likely, frozenset(explains))

    def _compared(
        self, subject: Subject, suspects: list[Suspect], broken: Sequence[str], must: bool, erratic: bool
    ) -> list[Suspect]:
        """Compare the suspects on the cases of all claims; those that are left after the broken ones."""
        for claim, case in self._cases(subject, broken, must):
            if claim.id not in broken:
                suspects = [s for s in suspects if s.of(broken) <= UNLIKE]
            if not suspects:
                return []
            own = self._see(subject, claim, case)
            if own is None:
                continue
            if own.broke in FATAL:
                return []
            if erratic and own.broke != getattr(self._see(subject, claim, case), "broke", None):
                continue  # what it does here is chance
            self._compare(subject, suspects, claim, case, own)
        return suspects

    def _compare(
        self, subject: Subject, suspects: Sequence[Suspect], claim: Claim, case: Case, own: Seen
    ) -> None:
        """Note for each suspect whether it does the same with a case as the object did."""
        by_answers = own.broke and claim.property_name not in BY_VARIETY
        for suspect in suspects:
            seen = self._see(suspect.subject, claim, case)
            if seen is None or (seen.broke.startswith("with …=True, ") and not own.broke):
                continue  # the mutant breaks it on a path that the object need not have
            same = PATH.sub("", seen.broke) == PATH.sub("", own.broke)
            if same and by_answers:
                same = self._same_answers(subject, suspect, own)
            suspect.compared.append((claim.id, case, bool(own.broke), same))

    def _bears_out(self, subject: Subject, suspect: Suspect, explains: Collection[str]) -> bool:
        """Whether more cases speak for a mistake than against it, where only words and claims are compared.

        To do exactly the same, it must break each of the claims in the same places, too.
        """
        if suspect.against() >= suspect.alike():
            return False
        exact = all(row[3] for row in suspect.compared)
        return not exact or all(self._drawn_alike(subject, suspect, name) for name in explains)

    @staticmethod
    def _told_by_breaking(suspect: Suspect, others: Sequence[Mapping[tuple[str, Case], bool]]) -> bool:
        """Whether a case that the object breaks tells a mistake from others, and not only one that it holds."""
        return any(
            broke and any(other.get((claim, case), same) != same for other in others)
            for claim, case, broke, same in suspect.compared
        )

    def _drawn_alike(self, subject: Subject, suspect: Suspect, name: str) -> bool:
        """Whether both break a claim in the same places, in the longest case that was compared."""
        cases = [case for claim, case, broke, same in suspect.compared if claim == name and broke and same]
        case = max(cases, key=lambda case: case.get("T", 0) + case.get("S", 0))
        claim = self.engine.spec.claims[name]
        one, other = (
            Run(self.engine, claim, s, (), "", plain=True).attempt(case)[0]
            for s in (subject, suspect.subject)
        )
        return drawn_alike(one, other)

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
        told = pattern(broken.error.what, subject.binding.arguments)
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

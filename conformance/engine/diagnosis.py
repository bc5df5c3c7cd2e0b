"""Which known mistake a broken object makes: it is compared with the mutants, on the very cases that it breaks.

A mutant explains an object if on every case on which both can be asked, it breaks the claims that the object
breaks, in the same words, and holds those that it holds; and where answers can be compared (no weights, no
chance), gives the same answers wherever the object departs.  It is named only if every other mutant of the role
is told apart from the object by some case.  Otherwise nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from ...reference.mutants import Mutant, load_kills, load_mutants
from ...spec import Claim, Likely, Spec, Verdict
from ..candidates.errors import CallFailed, TriuError
from ..candidates.layers import LayerSubject
from ..candidates.opening import open_candidate
from ..candidates.session import open_session
from ..candidates.subject import CLOSE, Subject
from ..candidates.target import locate
from . import draw
from .blueprints import loaded_faults
from .cases import Case, Inputs, OutOfDomain, Unseen, build_inputs
from .matching import Blueprint, Matched
from .run import Broken, Engine, Run, unsupported
from .trial import Trial, Violation

RECOMPUTING = ("recomputed", "recomputed_stack")  # the properties of the weight method
SIZES = 3  # for which a layer is recomputed to name its mistake
NEAR = 4  # with so many equal answers where it departs, an object may differ where it does not
LOADED_CASES = 8  # on which a layer is compared with known mistakes that have its weights
LOADED = 1e-4  # beside the largest entry; some layers compute in float32
SUSPECTS = 10  # of the nearest mutants, by the claims that break on them
BROKEN_CASES = 9  # of each broken claim
OTHER_CASES = 3  # of each other claim of the role
COMPARED_BY_ALL = (
    16  # on so many cases all mutants are compared; afterwards those that are told apart drop out
)
FATAL = ("time-out", "exit", "protocol")


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


@dataclass(frozen=True)
class Seen:
    """What an object did with one case of a claim."""

    broke: str  # how, without numbers and names; empty if the claim held
    asked: tuple[Inputs, ...]


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
        by_weights = self._by_weights(subject, broken)
        if isinstance(by_weights, Likely) and self._is_own(by_weights.mutant, subject):
            return Diagnosis(by_weights, frozenset(broken))
        suspects = self.suspects.likeliest(subject.role.id, broken, held, outside)
        by_answers = self._by_answers(subject, suspects, broken, held, bool(must), by_weights)
        if by_answers is None and isinstance(by_weights, Likely):
            return Diagnosis(by_weights, frozenset(broken))
        return by_answers

    def _by_answers(
        self,
        subject: Subject,
        suspects: Sequence[Suspect],
        broken: Sequence[str],
        held: Collection[str],
        must: bool,
        by_weights: Likely | Broken | None,
    ) -> Diagnosis | None:
        """The mutant of the role that does the same on every case, and is told apart from all others."""
        erratic = any(self.engine.spec.claims[c].property_name == "repeatable" for c in broken)
        compared = 0
        for claim, case in self._cases(subject, broken, must):
            own = self._see(subject, claim, case)
            if own is None or own.broke in FATAL:
                continue
            if erratic and own.broke != getattr(self._see(subject, claim, case), "broke", None):
                continue  # what it does here is chance
            compared += 1
            same: list[Suspect] = []
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
                same.append(suspect)
                if own.broke and claim.id in broken:
                    suspect.explains.add(claim.id)
            for suspect in same:
                suspect.cases += 1
                suspect.telling += told
            if not any(s.alive or s.near for s in suspects):
                return None

        left = [s for s in suspects if s.alive and s.explains]
        if (
            not left and subject.told_by_answers
        ):  # a choice of its own where nothing is wrong may set it apart
            left = [s for s in suspects if s.near and s.explains and s.cases >= NEAR]
        consistent = [s for s in left if s.killers.isdisjoint(held)]
        left = consistent if len(consistent) == 1 else left
        if len(left) != 1:
            return None
        (named,) = left
        if not isinstance(by_weights, Likely) and self._recomputing(subject.role.id):
            other = self._by_weights(named.subject)
            if isinstance(other, Likely) or not self._alike(by_weights, other):
                return None
        mutant = named.mutant
        likely = Likely(mutant.id, mutant.misconception, mutant.correction, named.cases, named.telling)
        return Diagnosis(likely, frozenset(named.explains)) if named.telling else None

    def _by_weights(self, subject: Subject, failing: Sequence[str] = ()) -> Likely | Broken | None:
        """What the weight method says of a layer: a known mistake, something else that is wrong, or nothing."""
        for claim in self._recomputing(subject.role.id):
            run = Run(self.engine, claim, subject, (), "", plain=True)
            if unsupported(claim, subject) or run.choices is None:
                continue
            cases = draw.stream(run.choices, claim.requires, self.engine.examples, self.engine.seed)
            sizes = {(case.get("h"), case.get("d")): case for case in reversed(cases)}
            names: list[str] = []
            broken = None
            for case in list(sizes.values())[:SIZES]:
                found, done = run.attempt(case)
                if done:
                    broken = broken or found
                    names.append(found.error.mutant if found and isinstance(found.error, Violation) else "")
            if names and names[0] and names.count(names[0]) == len(names):
                return _likely(names[0], len(names))
            if not any(names) and isinstance(subject, LayerSubject):
                loaded = self._by_loading(subject, claim, cases, failing)
                if loaded is not None:
                    return loaded
            return broken
        return None

    def _by_loading(
        self, subject: LayerSubject, claim: Claim, cases: Sequence[Case], failing: Sequence[str]
    ) -> Likely | None:
        """The known mistake that, with the layer's own weights, gives what the layer gives.

        They are compared on the cases of the weight method, and on all that the layer was asked where it broke
        other claims: there masks of padding are.
        """
        from ..properties.recomputed import recomputed_inputs

        own = subject.apart("weights")
        for key, found in list(subject.matches.items()):
            chosen = [case for case in cases if (case.get("h"), case.get("d")) == key[:2]][:LOADED_CASES]
            if not isinstance(found, Matched) or not chosen:
                continue
            trials = [Trial(claim, subject, (), case, build_inputs(subject.role, case)) for case in chosen]
            try:
                inputs = [recomputed_inputs(trial) for trial in trials]
                for name in failing:
                    inputs += self._asked_in(subject, name, chosen[0])
                observed = [own.run(given)["output"] for given in inputs]
            except (CallFailed, OutOfDomain):
                return None
            same_everywhere = partial(_same_everywhere, inputs=inputs, observed=observed)
            if same_everywhere(found.blueprint):
                return None
            names = {f.mutant for f in loaded_faults(subject, chosen[0], found) if same_everywhere(f)}
            own_names = {name for name in names if self._is_own(name, subject)}
            names = own_names or names  # the same mistake may be known of a part as well
            return _likely(names.pop(), len(inputs)) if len(names) == 1 else None
        return None

    def _is_own(self, name: str, subject: Subject) -> bool:
        """Whether a mistake ("id|place") is one of the layer's own role, and not of a part of it."""
        mutant, _, place = name.partition("|")
        claim = self.engine.spec.claims.get(load_mutants()[mutant].claim)
        return not place and claim is not None and claim.role == subject.role.id

    def _asked_in(self, subject: LayerSubject, name: str, sizes: Case) -> list[Inputs]:
        """What the layer was asked where it breaks a claim, in the sizes in which its weights are known."""
        claim, case = self.engine.spec.claims[name], self._case_of(name, subject)
        if case is None or claim.property_name in RECOMPUTING:
            return []
        same = {size: sizes[size] for size in ("h", "d", "dff") if size in case and size in sizes}
        longer = {size: max(case[size], 4) for size in ("T", "S") if size in case}
        subject.asked = []
        try:
            case = case.replaced(**same, **longer, **({"B": 2} if "B" in case else {}))
            Run(self.engine, claim, subject, (), "", plain=True).attempt(case)
        finally:
            asked, subject.asked = subject.asked, None
        return asked

    @staticmethod
    def _alike(one: Broken | None, other: Broken | None) -> bool:
        if one is None or other is None:
            return one is other
        told = [pattern(b.error.what) if isinstance(b.error, Violation) else b.kind for b in (one, other)]
        return told[0] == told[1]

    def _recomputing(self, role: str) -> list[Claim]:
        return [
            claim
            for claim in self.engine.spec.claims.values()
            if claim.role == role and claim.property_name in RECOMPUTING
        ]

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
            own, other = _answer(subject, inputs), _answer(suspect.subject, inputs)
            close = subject.closeness(inputs)
            if own is None or other is None or same(own, other, close):
                continue
            if same(_answer(subject, inputs, fresh=True), own, close):
                return False  # otherwise it does not answer twice alike, and nothing can be compared
        return True


def _same_everywhere(blueprint: Blueprint, inputs: Sequence[Inputs], observed: Sequence[np.ndarray]) -> bool:
    """Whether a module gives what was observed for all inputs."""
    for given, seen in zip(inputs, observed, strict=True):
        try:
            own = blueprint.run(blueprint.module, given).detach().numpy()
        except RuntimeError:
            return False
        bound = LOADED * max(1.0, float(np.abs(seen).max()))
        if own.shape != seen.shape or not float(np.abs(own - seen).max()) <= bound:
            return False
    return True


def _likely(name: str, cases: int) -> Likely:
    """A mistake of a layer's own, or in a part of it ("id|place")."""
    mutant, place = load_mutants()[name.partition("|")[0]], name.partition("|")[2]
    words = f"{place[:1].upper()}{place[1:]}{': ' * bool(place)}{mutant.misconception}"
    return Likely(mutant.id, words, mutant.correction, cases, cases, "weights")


def _answer(subject: Subject, inputs: Inputs, fresh: bool = False) -> Mapping[str, Any] | str | None:
    """What it answers, "failed" if it fails, None where such inputs do not concern it."""
    try:
        return subject.gist(inputs, subject.call(inputs, fresh))
    except CallFailed:
        return "failed"
    except TriuError:
        return None


def same(own: Any, other: Any, close: float = CLOSE) -> bool:
    """Whether two answers are equal but for rounding (or chance), in what both of them have."""
    if isinstance(own, Mapping) and isinstance(other, Mapping):
        return all(same(own[name], other[name], close) for name in own.keys() & other.keys())
    if isinstance(own, list | tuple) and isinstance(other, list | tuple):
        return len(own) == len(other) and all(same(a, b, close) for a, b in zip(own, other, strict=True))
    if isinstance(own, str) or isinstance(other, str):
        return own == other
    try:
        a, b = np.asarray(own, dtype=np.float64), np.asarray(other, dtype=np.float64)
    except (TypeError, ValueError):
        return True  # not for comparing: a log, a plan
    if a.shape != b.shape:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.abs(b)[np.isfinite(b)]
        bound = close * max(1.0, float(finite.max()) if finite.size else 1.0)
        return bool(((np.abs(a - b) <= bound) | (a == b) | (np.isnan(a) & np.isnan(b))).all())


def pattern(what: str) -> str:
    """A sentence on a violation without what depends on weights, and without names that only its author uses."""
    what = re.sub(r"its parameter \S+", "its parameter …", what)
    what = re.sub(r"\S+ (and|is) \S+(?=,? (are one and the same|in the same place))", "…", what)
    what = re.sub(r"with respect to \S+", "with respect to …", what)
    what = re.sub(r"\b[A-Za-z_]\w*(\.\w+)+\b|\b[A-Za-z]\w*_\w*\b", "…", what)  # a.b, layers.0, a_b
    what = re.sub(r"(\[[^\[\]]*\])+", "#", what)
    what = re.sub(r"\s*\([^()]*\)", "", what)
    what = re.sub(r"\b(float|bfloat|int|uint)\d+\b", "dtype", what)
    what = re.sub(r": \S+, expected \S+", ": #, expected #", what)
    return re.sub(r"-?\b(\d+\.\d+(e[-+]?\d+)?|\d+e[-+]?\d+|nan|inf|NaN)\b", "#", what)

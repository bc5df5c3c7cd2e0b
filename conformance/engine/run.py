"""Evaluates claims: from the cases of a claim to its verdict on one object."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...reports.json_report import finite
from ...spec import Claim, Convention, Evidence, Failure, FormulaError, Outcome, Spec, Verdict
from ..candidates.errors import FATAL, CallFailed
from ..candidates.opening import Candidate
from ..candidates.subject import Subject
from . import draw
from .cases import Case, Inputs, OutOfDomain, Unseen, build_inputs
from .pictures import picture
from .snippet import readable_inputs, snippet
from .trial import Difference, Trial, Violation

DEFAULT_EXAMPLES = 24
STILL_HELD = 5  # claims at most that held, and must hold under another convention too, where one is offered
# Errors that no other sizes would mend.
WHATEVER_THE_SIZES = re.compile(r"\b(Name|UnboundLocal|NotImplemented|Import|ModuleNotFound|Syntax)Error\b")


@dataclass(frozen=True)
class Broken:
    """What went wrong on a case: a violation, or a call that failed."""

    error: Violation | CallFailed
    trial: Trial

    @property
    def kind(self) -> str:
        return "violation" if isinstance(self.error, Violation) else self.error.kind


class Unexamined(CallFailed):
    """An answer that a property stumbled over; whose fault that is, the judges tell."""

    kind = "unexamined"


class Engine:
    """Evaluates the claims of a spec on one candidate, each once; what a claim rests on comes first.

    With ``alone`` each claim is judged by itself, whatever it rests on, and no failure is made small or explained.
    """

    def __init__(
        self,
        spec: Spec,
        candidate: Candidate,
        *,
        seed: int = 0,
        examples: int = DEFAULT_EXAMPLES,
        judges: Iterable[Candidate] = (),
        alone: bool = False,
    ) -> None:
        self.spec, self.candidate, self.seed, self.examples = spec, candidate, seed, examples
        self.judges = judges
        self.alone = alone
        # By claim and path of the object: the smallest case that was found.
        self.failing: dict[tuple[str, str], Case] = {}
        # Objects that hung or died over a picture: no more of them is drawn.
        self.undrawable: set[str] = set()
        self._to_draw: dict[tuple[str, str], tuple[Run, Broken]] = {}
        self._verdicts: dict[tuple[str, tuple[str, ...]], Verdict] = {}

    def keep(self, run: Run, broken: Broken) -> None:
        """Remember a failure that may be drawn."""
        self._to_draw[run.claim.id, run.name] = (run, broken)

    def with_pictures(self, verdicts: Iterable[Verdict]) -> list[Verdict]:
        """The verdicts, failures with their pictures.

        It comes last: pictures take calls of their own, and what an object does then changes no verdict.
        """
        found = []
        for verdict in verdicts:
            kept = self._to_draw.get((verdict.claim, verdict.object))
            if kept is not None and verdict.failure is not None and verdict.verdict == "failed":
                verdict = replace(verdict, failure=replace(verdict.failure, picture=picture(*kept)))
            found.append(verdict)
        return found

    def verdicts(self, claim: Claim) -> list[Verdict]:
        """A verdict for each object (or pair of objects) that the claim concerns."""
        subjects = self.candidate.filling(claim.role)
        groups = [(subject, partners) for subject in subjects for partners in self._partners(claim, subject)]
        if not groups:
            wanted = [r for r in (claim.role, *claim.partners) if not self.candidate.filling(r)]
            reason = (
                f"it provides no {' and no '.join(wanted)}" if wanted else "it has one object of this role"
            )
            return [_verdict(claim, "—", "unsupported", reason=reason)]
        return [self.verdict(claim, subject, partners) for subject, partners in groups]

    def _partners(self, claim: Claim, subject: Subject) -> list[tuple[Subject, ...]]:
        groups: list[tuple[Subject, ...]] = [()]
        for role in claim.partners:
            found = self.candidate.filling(role)
            if role == claim.role:  # each unordered pair once
                found = found[found.index(subject) + 1 :]
            groups = [(*group, other) for group in groups for other in found]
        return groups

    def verdict(self, claim: Claim, subject: Subject, partners: tuple[Subject, ...] = ()) -> Verdict:
        """The verdict of a claim on an object, evaluated once."""
        key = (claim.id, (subject.binding.path, *(p.binding.path for p in partners)))
        known = self._verdicts.get(key)
        if known is None:
            known = self._verdicts[key] = self._evaluate(claim, subject, partners)
        return known

    def known(self, subject: Subject) -> list[Verdict]:
        """The verdicts so far on an object alone."""
        return [v for (_, paths), v in self._verdicts.items() if paths == (subject.binding.path,)]

    def retry(
        self, claim: Claim, subject: Subject, partners: tuple[Subject, ...], case: Case
    ) -> Failure | None:
        """What goes wrong on one case, or None.  Raises OutOfDomain where the object does not take such a case."""
        run = Run(self, claim, subject, partners, "", plain=True)
        broken, done = run.attempt(case)
        if broken is None and not done:
            raise OutOfDomain("the object does not take this case any more")
        return None if broken is None else run.failure(broken)

    def _evaluate(self, claim: Claim, subject: Subject, partners: tuple[Subject, ...]) -> Verdict:
        name = " + ".join(s.binding.name for s in (subject, *partners))
        broken = next((other for other in (subject, *partners) if other.problem), None)
        outside = unsupported(claim, subject)
        if outside:
            return _verdict(claim, name, "unsupported", reason=outside)
        for other_id in () if self.alone else claim.rests_on:
            other = self.spec.claims[other_id]
            for on in (subject, *partners):
                if on.role.id != other.role or other.partners:
                    continue
                below = self.verdict(other, on)
                if below.verdict in ("failed", "errored", "inconclusive", "blocked", "suite_fault"):
                    cause = below.reason.removeprefix("rests on ") if below.verdict == "blocked" else other_id
                    return _verdict(claim, name, "blocked", reason=f"rests on {cause}")
        if broken is not None and broken.binding.settings and not WHATEVER_THE_SIZES.search(broken.problem):
            reason = (
                f"its sizes come from {broken.binding.settings}, and with those of a claim {broken.problem}"
            )
            return _verdict(claim, name, "unsupported", reason=reason)
        if broken is not None:
            failure = Failure(f"{broken.binding.name}: {broken.problem}", hint=claim.hint)
            return _verdict(claim, name, "errored", failure=failure, reason=broken.problem)
        try:
            return Run(self, claim, subject, partners, name, plain=self.alone).verdict()
        except (
            Exception
        ) as error:  # of the claim's formulas, its property, or the engine: never the candidate's
            reason = f"{claim.file}: claim {claim.id}: {type(error).__name__}: {error}"
            return _verdict(claim, name, "suite_fault", reason=reason, failure=Failure(reason))


def unsupported(claim: Claim, subject: Subject) -> str:
    """Why a claim does not concern an object, or nothing."""
    for convention, values in claim.conventions.items():
        value, how = subject.conventions.get(convention, ("", ""))
        if value not in values:
            return f"its convention of {convention} is {value} ({how})"
    for need in claim.needs:
        if not subject.has(need):
            return subject.lacks(need) or {
                "batches": "it takes single sequences",
                "gradient": "it is not differentiable by PyTorch",
                "mask": "it takes no mask",
                "weights": "it does not return its weights",
                "torch": "it is not made for torch",
                "constructor": "it is a function",
                "causal": "it may be an encoder's as well",
            }.get(
                need,
                f"it has no {need.removeprefix('argument ').removeprefix('flag ').removeprefix('parameter ')}",
            )
    return ""


class Run:
    """One claim on one object: tries its cases, collects evidence, explains a failure."""

    def __init__(
        self,
        engine: Engine,
        claim: Claim,
        subject: Subject,
        partners: tuple[Subject, ...],
        name: str,
        *,
        plain: bool = False,
    ) -> None:
        self.engine, self.claim, self.subject, self.partners, self.name = (
            engine,
            claim,
            subject,
            partners,
            name,
        )
        self.plain = plain
        self.margin = 0.0
        self.count = 0
        self.skipped = ""
        self.unseen = ""
        self._built: dict[Case, Inputs] = {}
        self.choices = self._choices()

    def _choices(self) -> Mapping[str, tuple[Any, ...]] | None:
        """The claim's domain as far as the candidate takes it; None if nothing is left."""
        choices = {}
        for name, values in self.claim.domain.dimensions.items():
            limit = self.subject.limits.get(name)
            kept = values
            if name in self.subject.irrelevant:
                kept = values[:1]
            elif limit is not None and not (name == "dtype" and not {"float64", "float32"} & set(values)):
                kept = tuple(value for value in values if value in limit)
            if name == "dtype" and self.subject.framework != "torch":
                kept = tuple(value for value in kept if value != "bfloat16")
            if not kept:
                return None
            choices[name] = kept
        return choices

    def verdict(self) -> Verdict:
        claim = self.claim
        if self.choices is None:
            return self._done("unsupported", reason="its cases lie outside of what the candidate takes")
        owed = [f for f in claim.evidence if draw.reachable(self.choices, claim.requires, f)]
        waived = tuple(f.text for f in claim.evidence if f not in owed)
        cases = draw.stream(self.choices, claim.requires, self.engine.examples, self.engine.seed)
        broken, seen = self._try(cases, owed)
        beyond: list[str] = []
        for formula in owed:
            if broken is None and formula.text not in seen:
                count = min(12, self.engine.examples - 1)
                extra = draw.seek(self.choices, claim.requires, formula, count, self.engine.seed)
                before = self.count
                broken, more = self._try(extra, owed)
                seen |= more
                if extra and broken is None and self.count == before:
                    beyond.append(formula.text)  # every such case lies outside of what the candidate takes
        owed = [f for f in owed if f.text not in beyond]
        waived = (*waived, *beyond)
        missing = tuple(f.text for f in owed if f.text not in seen)
        evidence = Evidence(self.count, tuple(f.text for f in owed if f.text in seen), missing, waived)
        if broken is not None:
            return self._broken(broken, evidence)
        if not self.count and self.unseen:
            failure = Failure(self.unseen, hint=claim.hint)
            return self._done("inconclusive", evidence, reason=self.unseen, failure=failure)
        if not self.count:
            reason = self.skipped or "no case of the domain lies within what the candidate takes"
            return self._done("unsupported", evidence, reason=reason)
        if missing:
            reason = f"not seen in {self.count} cases: {'; '.join(missing)}"
            return self._done(
                "inconclusive",
                evidence,
                reason=reason,
                failure=Failure(reason, hint="Run with more --examples."),
            )
        return self._done("passed", evidence)

    def _try(self, cases: Sequence[Case], owed: Sequence[Any]) -> tuple[Broken | None, set[str]]:
        seen: set[str] = set()
        if len(cases) > 1 and "example" not in self.claim.domain.dimensions:
            self.subject.prefetch([self.subject.default(self._inputs(case)) for case in cases])
        for case in cases:
            broken, done = self.attempt(case)
            if broken is not None:
                self.count += 1
                return broken, seen
            if done:
                self.count += 1
                seen |= {f.text for f in owed if f.text not in seen and f(case)}
        return None, seen

    def attempt(self, case: Case) -> tuple[Broken | None, bool]:
        """The claim on one case: what broke, and whether the case lies within the candidate's domain."""
        from ..properties import apply

        trial = Trial(self.claim, self.subject, self.partners, case, self._inputs(case))
        try:
            apply(trial)
        except OutOfDomain as error:
            self.skipped = str(error)
            return None, False
        except Unseen as error:
            self.unseen = str(error)
            return None, False
        except (Violation, CallFailed) as error:
            return Broken(error, trial), True
        except FormulaError:
            raise
        except Exception as error:  # the answer is of a form that the property did not expect
            what = f"what it returned could not be examined: {type(error).__name__}: {error}"
            return Broken(Unexamined(what), trial), True
        self.margin = max(self.margin, trial.margin)
        return None, True

    def _inputs(self, case: Case) -> Inputs:
        known = self._built.get(case)
        if known is None:
            known = self._built[case] = build_inputs(self.subject.role, case)
        return known

    def _done(self, outcome: Outcome, evidence: Evidence | None = None, **more: Any) -> Verdict:
        margin = float(f"{self.margin:.2g}") if outcome == "passed" and self.margin else None
        return _verdict(
            self.claim, self.name, outcome, evidence=evidence or Evidence(), margin=margin, **more
        )

    # failures

    def _broken(self, broken: Broken, evidence: Evidence) -> Verdict:
        if broken.kind in FATAL:
            return self._done("errored", evidence, failure=self.failure(broken))
        assert self.choices is not None
        if not self.plain:
            smallest = broken.trial.case
            if not self.subject.costly:
                smallest = draw.smallest(
                    self.choices,
                    self.claim.requires,
                    broken.trial.case,
                    lambda c: self._same_way(c, broken),
                    self.engine.seed,
                )
            again = self._fresh(smallest)
            cause = self._chance(broken if again is None else again)
            if cause:
                return _verdict(self.claim, self.name, "blocked", reason=f"rests on {cause}")
            if again is None:
                what = f"not deterministic: {_sentence(broken.error)}; the same case passed when it was tried again"
                return self._done(
                    "failed", evidence, failure=replace(self.failure(broken), what=what, meant="")
                )
            broken = again
            fault = self._suite_fault(broken)
            if fault:
                return self._done(
                    "suite_fault", evidence, failure=replace(self.failure(broken), what=fault), reason=fault
                )
        self.engine.failing[self.claim.id, self.subject.binding.path] = broken.trial.case
        if not self.plain:
            self.engine.keep(self, broken)
        outcome: Outcome = "failed" if broken.kind in ("violation", "result") else "errored"
        return self._done(outcome, evidence, failure=self.failure(broken))

    def _chance(self, broken: Broken) -> str:
        """The claim that equal calls give equal results, where they do not: then nothing else can be compared."""
        own = [
            claim
            for claim in self.engine.spec.claims.values()
            if claim.role == self.claim.role
            and claim.property_name == "repeatable"
            and claim is not self.claim
        ]
        if len(own) != 1 or broken.kind != "violation" or self._is_below(own[0]):
            return ""
        try:
            with broken.trial.aside():
                gists = [
                    self.subject.gist(broken.trial.inputs, self.subject.call(broken.trial.inputs, fresh=True))
                    for _ in range(3)
                ]
        except (CallFailed, OutOfDomain):
            return ""
        first, *others = [np.asarray(gist.get("output", 0.0)) for gist in gists]
        if all(o.shape == first.shape and np.allclose(o, first, 1e-5, 1e-5, equal_nan=True) for o in others):
            return ""
        verdict = self.engine.verdict(own[0], self.subject).verdict
        return own[0].id if verdict == "failed" else ""

    def _is_below(self, claim: Claim) -> bool:
        """Whether a claim rests on this one, directly or not."""
        below = map(self.engine.spec.claims.__getitem__, claim.rests_on)
        return any(other is self.claim or self._is_below(other) for other in below)

    def _same_way(self, case: Case, broken: Broken) -> bool:
        found, _ = self.attempt(case)
        return found is not None and found.kind == broken.kind

    def _fresh(self, case: Case) -> Broken | None:
        self.subject.remembered.clear()
        return self.attempt(case)[0]

    def _suite_fault(self, broken: Broken) -> str:
        """Whether the baseline fails the case too, or the second opinion disagrees with it."""
        outcomes = {}
        for judge in self.engine.judges:
            if judge.name == self.subject.session.target.text:
                continue
            outcomes[judge.name] = self._judged(judge, broken.trial.case)
        fails = [name for name, ok in outcomes.items() if ok is False]
        if isinstance(broken.error, Unexamined) and True not in outcomes.values():
            return f"{self.claim.file}: claim {self.claim.id}: {broken.error}"
        if fails:
            return f"the {' and the '.join(fails)} fails this case too: {_sentence(broken.error)}"
        return ""

    def _judged(self, judge: Candidate, case: Case) -> bool | None:
        """True if the judge passes the case, False if it fails it, None if it has nothing to say."""
        partners: list[Subject] = []
        for role in self.claim.partners:
            found = judge.filling(role)
            if not found:
                return None
            partners.append(found[-1])
        result: bool | None = None
        for subject in judge.filling(self.claim.role):
            if subject.problem or unsupported(self.claim, subject) or subject in partners:
                continue
            run = Run(self.engine, self.claim, subject, tuple(partners), subject.binding.name, plain=True)
            if run.choices is None:
                continue
            broken, done = run.attempt(case)
            if done:
                if broken is None:
                    return True
                result = False
        return result

    def failure(self, broken: Broken) -> Failure:
        """What went wrong on a case, for a person."""
        trial, error = broken.trial, broken.error
        difference = error.difference if isinstance(error, Violation) else None
        difference = difference or Difference(None, None)
        return Failure(
            what=_sentence(error),
            expected=finite(difference.expected),
            observed=finite(difference.observed),
            index=difference.index,
            wrong=difference.wrong,
            case=finite(dict(trial.case)),
            told=tuple(name for name in trial.case if self._is_told(name, trial.case[name])),
            inputs=finite(readable_inputs(trial)),
            meant="" if self.plain else self._meant(trial.case),
            hint=self.claim.hint,
            snippet=snippet(trial),
            error=finite(dict(error.detail)) if isinstance(error, CallFailed) else None,
        )

    def _is_told(self, name: str, value: Any) -> bool:
        """Whether a dimension of a case is worth telling: a number, or a word that is not the ordinary one."""
        if name == "seed" or (
            name in ("place", "full", "pad_id") and "ids" not in self.subject.binding.arguments
        ):
            return False
        word = isinstance(value, bool | str)
        return not word or name == "mask" or value != self.claim.domain.dimensions[name][0]

    def _meant(self, failing: Case) -> str:
        """The declaration under which the claim would pass, if there is one."""
        assert self.choices is not None
        cases = (
            failing,
            *draw.stream(self.choices, self.claim.requires, self.engine.examples, self.engine.seed),
        )
        for convention in self.subject.role.conventions:
            current, how = self.subject.conventions.get(convention.name, ("", ""))
            if convention.kind == "probed" or how == "declared" or current not in convention.values:
                continue
            for value, meaning in convention.values.items():
                if value == current or (
                    convention.name == "polarity" and value == "additive"
                ):  # seen, not meant
                    continue
                other = self.subject.with_convention(convention.name, value)
                if not self._would_fit(other, convention, value, cases):
                    continue
                name = self.subject.binding.entry["name"]
                key = name if name.replace("_", "").isalnum() else f'"{name}"'
                declare = f'conventions.{key}.{convention.name} = "{value}"'
                return f"correct if you meant: {meaning}. Then declare it in triu.toml: {declare}"
        return ""

    def _would_fit(self, other: Subject, convention: Convention, value: str, cases: Sequence[Case]) -> bool:
        """Whether the object is right under another value: this claim and all that rest on it pass there.

        Where the claim does not concern that value, those made for it must pass.  Some of those that it passed
        so far must still hold: where no call succeeds, what asks for an error passes as well.
        """
        spec, role = self.engine.spec, self.claim.role
        if unsupported(self.claim, other):
            name = convention.name
            claims = [
                c for c in spec.claims.values() if c.role == role and c.conventions.get(name) == (value,)
            ]
        else:
            claims = [self.claim, *spec.resting_on(self.claim.id)]
        passed = [spec.claims[v.claim] for v in self.engine.known(self.subject) if v.verdict == "passed"]
        others = [c for c in passed if c.role == role and c not in claims][:STILL_HELD]
        tried = False
        for claim in (*claims, *others):
            if (
                claim.role != role
                or (claim.partners and claim is not self.claim)
                or unsupported(claim, other)
            ):
                continue
            run = Run(self.engine, claim, other, self.partners, self.name, plain=True)
            if run.choices is None:
                continue
            own = (
                cases
                if claim is self.claim
                else draw.stream(run.choices, claim.requires, 6, self.engine.seed)
            )
            if run._try(own, ())[0] is not None:
                return False
            tried = tried or (bool(run.count) and claim in claims)
        return tried


def _sentence(error: Violation | CallFailed) -> str:
    return (
        error.what
        if isinstance(error, Violation)
        else f"the call failed: {error}"
        if error.kind == "exception"
        else str(error)
    )


def _verdict(claim: Claim, name: str, outcome: Outcome, **more: Any) -> Verdict:
    return Verdict(
        claim.id, claim.title, claim.role_label, claim.level, name, outcome, source=claim.source, **more
    )

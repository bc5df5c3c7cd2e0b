"""Grades one submission: a clean copy of it, a confined worker, the claims of the assignment, points.

The checker owns claims, cases, expected values and verdicts; what comes from the submission are arrays and words.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...spec import Failure, Grade, Profile, Report, Spec, Verdict
from ..api import Check, one_thread
from ..candidates import wire
from ..candidates.errors import FATAL, CallFailed, OpenError, TargetError, TriuError
from ..candidates.session import Logged, open_session
from ..candidates.target import Declarations, Target
from ..candidates.transport import OverSocket
from ..engine import draw
from ..engine.likeness import same
from ..engine.run import DEFAULT_EXAMPLES, Engine
from ..engine.suspects import suspects_of
from .confine import missing
from .forked import Forked, Template
from .profile import score, seed_for
from .submissions import Prepared, Submission, SubmissionError, prepare
from .watched import Watched

OF_FORM = frozenset(  # properties that say of which form an answer is; most others presume that
    "shape layer_shape logits_shape lm_shape readable returns_tokens loss_kind shifted_length clones_counted "
    "same_for_batch is_distribution mixes_given_tokens".split()
)
ASKED_AGAIN = 6  # calls of each function, in a fresh worker


class IsolationError(TriuError):
    """Full isolation was asked for, and this machine has not all of its layers."""


@dataclass(frozen=True)
class Manner:
    """How submissions are graded.

    Attributes:
        secret: from which each submission's seed is derived.
        examples: cases for each claim.
        isolation: ``auto`` (each layer that there is), ``required`` (all of them) or ``process`` (a process alone).
    """

    secret: bytes
    examples: int = DEFAULT_EXAMPLES
    isolation: str = "auto"


def grade(submission: Submission, profile: Profile, spec: Spec, manner: Manner, template: Template) -> Grade:
    """Grade a submission, whatever it does.

    Raises:
        IsolationError: ``isolation`` is ``required`` and a layer is missing.
        TemplateError: no worker can be started; nobody's submission is at fault.
    """
    began = time.monotonic()
    seed = seed_for(manner.secret, submission.name, version("triu"))
    blank = Grade(
        submission=submission.name,
        profile=(profile.id, profile.title),
        status="ungradable",
        max_score=profile.points,
        milestones=profile.milestones,
        seed=seed,
        extra={"digest": submission.digest},
    )
    with tempfile.TemporaryDirectory(prefix="triu-", ignore_cleanup_errors=True) as folder:
        try:
            prepared = prepare(submission, Path(folder) / "submission")
        except SubmissionError as error:
            return replace(
                blank, word=error.word, reason=str(error), seconds=round(time.monotonic() - began, 3)
            )
        worker = open_worker(profile, prepared.folder, manner, template)
        try:
            found = _judged(blank, prepared, profile, spec, manner, worker)
        finally:
            worker.close()
            draw.forget()
            suspects_of(spec).forget()
        output = worker.output if isinstance(worker, Forked) else ""
        layers = worker.layers if isinstance(worker, Forked) else ("process only",)
        seconds = round(time.monotonic() - began, 3)
        return replace(found, output=output, layers=layers, seconds=seconds)


def open_worker(profile: Profile, folder: Path, manner: Manner, template: Template) -> OverSocket:
    """A worker for a submission, started, with the isolation that was asked for."""
    if manner.isolation == "process" or not Template.possible():
        if manner.isolation == "required":
            raise IsolationError("isolation is required, and this system is not Linux")
        return Watched(profile.limits.memory_mb, profile.limits.total_seconds)
    worker = Forked(
        template,
        folder,
        memory_mb=profile.limits.memory_mb,
        total_seconds=profile.limits.total_seconds,
    )
    worker.start()
    if manner.isolation == "required" and missing(worker.layers):
        worker.close()
        raise IsolationError(
            f"isolation is required, and this machine has no {', no '.join(missing(worker.layers))}"
        )
    return worker


def _judged(
    blank: Grade, prepared: Prepared, profile: Profile, spec: Spec, manner: Manner, worker: OverSocket
) -> Grade:
    """The grade, or why there is none."""
    path = prepared.target
    where = {"kind": "file" if path.is_file() else "folder", "path": str(path)}
    declared = Declarations(
        profile.roles, profile.conventions, profile.arguments, f"profile {profile.id}", True
    )
    named = [name for names in profile.roles.values() for name in names]
    session = open_session(
        Target(blank.submission, where, "", declared),
        transport=worker,
        named=named,
        import_seconds=profile.limits.import_seconds,
        call_seconds=profile.limits.call_seconds,
    )
    try:
        check = Check(session, spec, seed=blank.seed, examples=manner.examples)
    except OpenError as error:
        return replace(
            blank,
            word=error.kind if error.kind in FATAL else "not importable",
            reason=prepared.told(str(error)),
            notes=prepared.notes,
        )
    except TargetError:
        return replace(blank, word="no role", reason=_nothing_asked_for(profile, spec), notes=prepared.notes)
    report = check.report([spec.claims[name] for name in profile.claims], pictures=False)
    verdicts = _same_when_fresh(list(_credited(report, check, spec)), check)
    report = replace(
        report,
        candidate={**report.candidate, "target": blank.submission},
        verdicts=tuple(_placed(verdict, prepared) for verdict in check.with_pictures(verdicts)),
    )
    return replace(
        blank,
        status="graded",
        items=score(profile, report.verdicts, report.provides),
        notes=(*prepared.notes, *map(prepared.told, report.notes)),
        report=report,
    )


def _nothing_asked_for(profile: Profile, spec: Spec) -> str:
    roles = profile.required or tuple(dict.fromkeys(spec.claims[name].role for name in profile.claims))
    asked = "; ".join(f"{role}, as {' or '.join(spec.roles[role].names[:2])}" for role in roles[:6])
    return f"it defines nothing that the assignment asks for under a name that is recognised: {asked}"


def _credited(report: Report, check: Check, spec: Spec) -> Iterator[Verdict]:
    """The verdicts; what is blocked is judged by itself, and passes if it holds all the same.

    A failure costs its own claim.  What rests on it and breaks with it stays blocked and costs nothing more; so
    does what rests on a claim that gives no usable answer, or one of another form: nothing else can be read off it.
    """
    usable = {
        (v.claim, v.object)
        for v in report.verdicts
        if v.verdict == "failed" and spec.claims[v.claim].property_name not in OF_FORM
    }
    engine = Engine(spec, check.candidate, seed=check.seed, examples=check.engine.examples, alone=True)
    with one_thread():
        for verdict in report.verdicts:
            cause = (verdict.reason.removeprefix("rests on "), verdict.object)
            if verdict.verdict == "blocked" and cause in usable:
                alone = engine.verdicts(spec.claims[verdict.claim])
                held = [v for v in alone if v.object == verdict.object and v.verdict == "passed"]
                if held:
                    verdict = replace(held[0], reason=f"judged by itself; it {verdict.reason}")
            yield verdict


def _same_when_fresh(verdicts: list[Verdict], check: Check) -> list[Verdict]:
    """The verdicts; a function that answers otherwise in a fresh process than in a used one is not repeatable.

    What it was asked last is asked of another worker, for functions whose repeated calls agreed so far.
    """
    stateless = {
        verdict.object: verdict
        for verdict in verdicts
        if verdict.verdict == "passed" and verdict.claim.endswith(".repeatable")
    }
    log = check.session.log[:]
    check.session.renew()
    for subject in check.candidate.subjects:
        passed = stateless.get(subject.binding.name)
        if passed is None or subject.binding.entry["kind"] != "function":
            continue
        asked = [e for e in reversed(log) if e.call.built.path == subject.binding.path and _alone(e)][
            :ASKED_AGAIN
        ]
        answers = check.session.calls([entry.call for entry in asked])
        for entry, answer in zip(asked, answers, strict=True):
            if not isinstance(answer, CallFailed) and not same(_plain(answer), _plain(entry.result)):
                told = "after many calls it answers otherwise than the same call in a fresh process"
                failed = replace(passed, verdict="failed", margin=None, failure=Failure(told))
                verdicts[verdicts.index(passed)] = failed
                break
    return verdicts


def _alone(entry: Logged) -> bool:
    """Whether a call can be made again by itself."""
    call = entry.call
    given = [*call.args, *call.kwargs.values()]
    plain_values = all(isinstance(v, wire.Array | bool | int | float | str | None) for v in given)
    return entry.error is None and plain_values and not (call.follows or call.train or call.return_inputs)


def _plain(value: Any) -> Any:
    """An answer without its containers, for comparing."""
    if isinstance(value, wire.Array):
        return value.values
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return {name: _plain(item) for name, item in value.items()} if isinstance(value, dict) else value


def _placed(verdict: Verdict, prepared: Prepared) -> Verdict:
    """The verdict with places in a notebook told by its cells."""
    failure = verdict.failure
    if failure is None or not prepared.cells:
        return verdict
    error = failure.error
    if error and error.get("file") and error.get("line"):
        file, _, line = prepared.place(str(error["file"]), int(error["line"])).rpartition(", line ")
        error = {**error, "file": file, "line": int(line)}
    return replace(verdict, failure=replace(failure, what=prepared.told(failure.what), error=error))

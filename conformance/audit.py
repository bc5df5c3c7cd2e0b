"""Runs a ledger: judges its claims on the baseline, executes its checks, and computes each row's verdict from them.

No verdict is taken from the ledger: what is declared there is compared with what came out.
"""

from __future__ import annotations

import contextlib
import io
import random
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..spec import Audited, AuditedLesson, Came, Check, Finding, Lesson, Spec, Statement, called
from ..spec.ledger import CheckRole

if TYPE_CHECKING:
    from .api import Check as Opened

PASSED = "passed"


class Judge:
    """Says of a claim what it comes to on the baseline; each claim is judged once."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._opened: Opened | None = None
        self._told: dict[str, str] = {}

    def __call__(self, claim: str) -> str:
        """``passed``, or the verdict that stands in the way; ``unsupported`` where nothing is judged."""
        if claim not in self._told:
            from .api import open_check

            if self._opened is None:
                self._opened = open_check("baseline", spec=self._spec, in_process=True)
            found = [v.verdict for v in self._opened.verdicts(self._spec.claims[claim])]
            judged = [verdict for verdict in found if verdict != "unsupported"]
            self._told[claim] = next((v for v in judged if v != PASSED), PASSED if judged else "unsupported")
        return self._told[claim]

    def close(self) -> None:
        """Let go of the baseline."""
        if self._opened is not None:
            self._opened.close()


def audit(
    lesson: Lesson, judge: Callable[[str], str], on_row: Callable[[], object] = lambda: None
) -> AuditedLesson:
    """All rows of a lesson, with what came out.  ``judge`` says of a claim what it comes to on the reference."""
    rows = []
    for statement in lesson.statements:
        rows.append(_audited(statement, judge))
        on_row()
    return AuditedLesson(lesson, tuple(rows))


def _audited(row: Statement, judge: Callable[[str], str]) -> Audited:
    claims = {claim: judge(claim) for claim in row.by}
    came = tuple(run_check(check, f"{row.id}, check {n}") for n, check in enumerate(row.checks, 1))
    results: dict[str, list[bool]] = {}
    if claims:
        results["as stated"] = [all(told == PASSED for told in claims.values())]
    for check, result in zip(row.checks, came, strict=True):
        if result.holds is not None:
            results.setdefault(check.role, []).append(result.holds)
    verdict = computed(results, bool(row.why))
    problems = [
        f"claim {claim}: {told} on the baseline, expected {PASSED}; what does not pass there is no evidence"
        for claim, told in claims.items()
        if told != PASSED
    ]
    for n, (check, result) in enumerate(zip(row.checks, came, strict=True), 1):
        if result.problem:
            problems.append(f"check {n} ({check.role}): {result.problem}")
    if verdict != row.verdict:
        told = "; ".join(
            f"{role}: {', '.join(str(one).lower() for one in found)}" for role, found in results.items()
        )
        came_to = f"{called(verdict)!r}" if verdict else "no verdict"
        problems.append(
            f"declared {called(row.verdict)!r}, but it comes to {came_to} ({told or 'nothing was run'})"
        )
    return Audited(row, verdict, claims, came, tuple(problems))


# What shows a verdict: the roles that it demands with what comes out there, and those that may be there and hold.
SHOWN_BY: Mapping[Finding, tuple[tuple[tuple[CheckRole, bool], ...], frozenset[CheckRole]]] = {
    "holds": ((("as stated", True),), frozenset()),
    "wrong": ((("as stated", False), ("right", True)), frozenset({"reading"})),
    "not reproducible": ((("as stated", False),), frozenset({"reading"})),
    "holds under a condition": ((("under", True), ("otherwise", False)), frozenset()),
    "convention": ((("one", True), ("other", True)), frozenset()),
}


def computed(results: Mapping[str, Sequence[bool]], has_reason: bool = False) -> Finding | None:
    """The verdict that follows from the results of checks by role; None where they fit none.

    Claims count as one result ``as stated``.  Nothing that ran, and a reason for it, is "not checkable here".
    """

    if not results:
        return "not checkable here" if has_reason else None
    for verdict, (demanded, besides) in SHOWN_BY.items():
        roles = {role for role, _ in demanded}
        if not roles <= results.keys() <= roles | besides:
            continue
        expected = {**dict.fromkeys(besides, True), **dict(demanded)}
        if all(result is expected[role] for role, found in results.items() for result in found):
            return verdict
    return None


def run_check(check: Check, name: str) -> Came:
    """Execute a check in a namespace of its own, from the same state of torch and NumPy each time."""
    space: dict[str, object] = {}
    try:
        with _fresh():
            exec(compile(check.code, name, "exec"), space)
    except (Exception, SystemExit) as error:
        return Came(None, problem=f"{_line(error, check.code, name)}{type(error).__name__}: {error}")
    holds = space.get("holds")
    if not isinstance(holds, bool):
        found = "nothing" if holds is None else f"{holds!r:.60} of type {type(holds).__name__}"
        return Came(
            None, problem=f"found {found} in `holds`, expected True or False: a bool, no tensor or NumPy bool"
        )
    return Came(holds, str(space.get("shown", "")))


def _line(error: BaseException, code: str, name: str) -> str:
    """Where in a check an error arose: the line with its text."""
    number = None
    if isinstance(error, SyntaxError) and error.filename == name:
        number = error.lineno
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == name:
            number = frame.lineno
    lines = code.splitlines()
    if number is None or not 0 < number <= len(lines):
        return ""
    return f"line {number}, `{lines[number - 1].strip():.80}`: "


@contextlib.contextmanager
def _fresh() -> Iterator[None]:
    """Seeds, default dtype, gradients and threads as at a start; all as before afterwards; nothing is printed."""
    import numpy as np
    import torch

    from .api import one_thread

    before = (torch.get_rng_state(), np.random.get_state(), random.getstate())
    dtype, gradients = torch.get_default_dtype(), torch.is_grad_enabled()
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    try:
        with (
            one_thread(),
            np.printoptions(),
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(gradients)
        torch.set_rng_state(before[0])
        np.random.set_state(before[1])
        random.setstate(before[2])

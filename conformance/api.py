"""``check``: a candidate in, a report out; the same for the command line, for pytest and from Python."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..spec import Claim, Report, Spec, Verdict, load_spec
from .candidates.errors import TriuError
from .candidates.opening import Candidate, open_candidate
from .candidates.session import CALL_SECONDS, IMPORT_SECONDS, Session, open_session
from .candidates.target import Declarations, Target, locate, read_declarations, version_of
from .candidates.transport import Transport
from .engine.run import DEFAULT_EXAMPLES, Engine

OnVerdict = Callable[[Verdict], None]


def _page_in_a_frame(report: Report) -> str:
    from ..reports import notebook_html

    return notebook_html(report)


Report.render_html = _page_in_a_frame


class SelectionError(TriuError):
    """The pattern of ``--claims`` matches no claim."""


def select(spec: Spec, pattern: str | None) -> tuple[Claim, ...]:
    """The claims that a pattern selects.  Raises SelectionError for none: that is never a pass."""
    claims = spec.select(pattern)
    if not claims:
        raise SelectionError(f"--claims {pattern}: no claim matches; `triu claims` lists all ids")
    return claims


class Judges:
    """The baseline and the NumPy second opinion, in this process, opened when the first case fails."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._opened: list[Candidate] = []

    def __iter__(self) -> Iterator[Candidate]:
        if not self._opened:
            self._opened = [
                open_candidate(open_session(locate(n), in_process=True), self._spec)
                for n in ("baseline", "numpy")
            ]
        return iter(self._opened)


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch with one thread: on small tensors more of them cost up to a hundred times, on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Check:
    """One candidate under one spec: opened, bound and ready to be judged, claim by claim."""

    def __init__(
        self, session: Session, spec: Spec, *, seed: int, examples: int, conventions: str = ""
    ) -> None:
        self.session, self.spec, self.seed, self.conventions = session, spec, seed, conventions
        self.candidate = open_candidate(session, spec)
        self.engine = Engine(spec, self.candidate, seed=seed, examples=examples, judges=Judges(spec))
        self._explained: dict[str, dict[tuple[str, str], Verdict]] = {}

    def verdicts(self, claim: Claim) -> list[Verdict]:
        """The verdicts of one claim, one for each object that it concerns."""
        with one_thread():
            return self.engine.verdicts(claim)

    def report(
        self,
        claims: Iterable[Claim] | None = None,
        on_verdict: OnVerdict | None = None,
        *,
        pictures: bool = True,
    ) -> Report:
        """Judge the claims (all of the spec by default)."""
        verdicts: list[Verdict] = []
        for claim in self.spec.claims.values() if claims is None else claims:
            for verdict in self.verdicts(claim):
                verdicts.append(verdict)
                if on_verdict is not None:
                    on_verdict(verdict)
        self._add_causes(verdicts)
        verdicts = self._with_mistakes(verdicts)
        if pictures:
            verdicts = self.with_pictures(verdicts)
        bound = [subject.bound_object() for subject in self.candidate.subjects]
        return Report(
            candidate=self._candidate(),
            seed=self.seed,
            binding=(*bound, *self.candidate.unjudged),
            verdicts=tuple(verdicts),
            environment=self.environment(),
            notes=self.candidate.notes,
        )

    def explained(self, claim: Claim) -> list[Verdict]:
        """The verdicts of one claim, failures with the likely mistake: for that all claims of its role are judged."""
        if claim.role not in self._explained:
            role = [c for c in self.spec.claims.values() if c.role == claim.role]
            found = self._with_mistakes([v for c in role for v in self.verdicts(c)])
            self._explained[claim.role] = {(v.claim, v.object): v for v in found}
        return [self._explained[claim.role][v.claim, v.object] for v in self.verdicts(claim)]

    def with_pictures(self, verdicts: Iterable[Verdict]) -> list[Verdict]:
        """The verdicts, failures with their pictures; after it no more claims are judged."""
        with one_thread():
            return self.engine.with_pictures(verdicts)

    def _with_mistakes(self, verdicts: list[Verdict]) -> list[Verdict]:
        if not any(v.verdict in ("failed", "errored") for v in verdicts):
            return verdicts
        from .engine.diagnosis import Doctor
        from .engine.suspects import suspects_of

        with one_thread():
            return Doctor(self.engine, suspects_of(self.spec)).explained(verdicts)

    def _add_causes(self, verdicts: list[Verdict]) -> None:
        """Where only claims were asked for that are blocked, what blocks them belongs to the answer."""
        told = {verdict.claim for verdict in verdicts}
        for verdict in [v for v in verdicts if v.verdict == "blocked"]:
            cause = verdict.reason.removeprefix("rests on ")
            if cause not in told:
                told.add(cause)
                verdicts += [v for v in self.verdicts(self.spec.claims[cause]) if v.verdict != "passed"]

    def _candidate(self) -> Mapping[str, Any]:
        target = self.session.target
        given = {"conventions": self.conventions} if self.conventions else {}
        version = version_of(target)
        if version:
            given["version"] = version
        return {"target": target.text, "kind": target.wire["kind"], **given}

    def environment(self) -> Mapping[str, Any]:
        from importlib.metadata import version

        return {
            "triu": version("triu"),
            "hypothesis": version("hypothesis"),
            "numpy": version("numpy"),
            "torch": version("torch"),
            "platform": f"{platform.system()} {platform.machine()}",
            "candidate": dict(self.session.description.get("versions", {})),
            "examples": self.engine.examples,
            "spec": list(self.spec.files),
        }

    def close(self) -> None:
        self.session.close()


def open_check(
    target: Any,
    *,
    spec: Spec | None = None,
    seed: int = 0,
    examples: int = DEFAULT_EXAMPLES,
    conventions: str | Path | Mapping[str, Mapping[str, str]] | None = None,
    roles: Mapping[str, str | Sequence[str]] | None = None,
    in_process: bool = False,
    device: str = "",
    import_seconds: float = IMPORT_SECONDS,
    call_seconds: float = CALL_SECONDS,
    transport: Transport | None = None,
) -> Check:
    """Open a candidate for checking.  See :func:`check` for the arguments and errors."""
    spec = load_spec() if spec is None else spec
    live: dict[str, Any] | None = None
    if isinstance(target, Target):
        located = target
    elif isinstance(target, str | Path):
        located = locate(str(target), conventions if isinstance(conventions, str | Path) else None)
    else:
        name = getattr(target, "__name__", type(target).__name__)
        live = {name: target}
        declared = read_declarations(conventions) if isinstance(conventions, str | Path) else Declarations()
        located = Target(name, {"kind": "live"}, "", declared)
    if isinstance(conventions, Mapping) or roles:
        declared = located.declarations
        tables = dict(conventions) if isinstance(conventions, Mapping) else dict(declared.conventions)
        assigned = {r: (n,) if isinstance(n, str) else tuple(n) for r, n in (roles or {}).items()} or dict(
            declared.roles
        )
        declared = Declarations(assigned, tables, declared.arguments, "the call of check()")
        located = Target(located.text, located.wire, located.only, declared)
    named = [
        *([located.only] if located.only else []),
        *(n for names in located.declarations.roles.values() for n in names),
    ]
    session = open_session(
        located,
        in_process=in_process,
        live=live,
        named=named,
        transport=transport,
        device=device,
        import_seconds=import_seconds,
        call_seconds=call_seconds,
    )
    try:
        given = str(conventions) if isinstance(conventions, str | Path) else ""
        return Check(session, spec, seed=seed, examples=examples, conventions=given)
    except BaseException:
        session.close()
        raise


def check(target: Any, *, claims: str | Iterable[str] | None = None, **options: Any) -> Report:
    """Check a candidate and return the report.

    Args:
        target: a path, a module name, ``module:object``, a built-in name (``baseline``, ``numpy``, ``torch``),
            or a live function, class or instance (which is then checked in this process).
        claims: shell patterns of claim ids, several of them or separated by commas; all claims by default.
        **options: ``spec``, ``seed``, ``examples``, ``conventions`` (a file, or a table by role or object),
            ``roles`` (role → the candidate's name), ``in_process``, ``device``.

    Raises:
        TriuError: the target is unusable; its subclasses say how.
        SpecError: a spec file is wrong.
    """
    opened = open_check(target, **options)
    try:
        pattern = claims if claims is None or isinstance(claims, str) else ",".join(claims)
        return opened.report(select(opened.spec, pattern))
    finally:
        opened.close()

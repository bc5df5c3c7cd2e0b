"""Runs the claims over the mutants: which claim kills which."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, lru_cache
from multiprocessing import get_context

from ..reference.mutants import Mutant, load_mutants
from ..reports.kills import Kills
from ..spec import Outcome, Spec, load_spec
from .candidates.opening import open_candidate
from .candidates.session import open_session
from .candidates.target import locate
from .engine.run import DEFAULT_EXAMPLES, Engine

KILLING = ("failed", "errored")
WORST: tuple[Outcome, ...] = (
    "suite_fault",
    "failed",
    "errored",
    "inconclusive",
    "blocked",
    "passed",
    "unsupported",
)


def try_mutant(
    mutant: Mutant,
    *,
    claims: Collection[str] | None = None,
    seed: int = 0,
    examples: int = DEFAULT_EXAMPLES,
) -> Kills:
    """The claims (all by default), each judged by itself, on the objects that show the mutant's bug."""
    from .api import one_thread

    spec = _spec()
    for name in [n for n in sys.modules if f"{n}.".startswith(f"{mutant.module}.")]:
        del sys.modules[name]  # some bugs are in what a module keeps from call to call
    with one_thread():
        candidate = open_candidate(open_session(locate(f"mutant:{mutant.id}"), in_process=True), spec)
        engine = Engine(spec, candidate, seed=seed, examples=examples, alone=True)
        outcomes: dict[str, Outcome] = {}
        for claim in spec.claims.values():
            if claims is not None and claim.id not in claims:
                continue
            found: list[Outcome] = [v.verdict for v in engine.verdicts(claim) if v.object != "—"]
            if found:
                outcomes[claim.id] = min(found, key=lambda outcome: WORST.index(outcome))
    killers = [claim for claim, outcome in outcomes.items() if outcome in KILLING]
    shown = _shown(spec, outcomes)
    return Kills(
        mutant.id,
        spec.claims[mutant.claim].role,
        mutant.claim,
        mutant.misconception,
        tuple(claim for claim in killers if claim in shown),
        tuple(claim for claim in killers if claim not in shown),
    )


def _shown(spec: Spec, outcomes: Mapping[str, Outcome]) -> set[str]:
    """The killers that rest on nothing that failed: what an ordinary report shows."""

    @cache
    def sound(claim: str) -> bool:
        return all(
            outcomes.get(other, "unsupported") in ("passed", "unsupported") and sound(other)
            for other in spec.claims[claim].rests_on
        )

    return {claim for claim, outcome in outcomes.items() if outcome in KILLING and sound(claim)}


Job = tuple[str, int, int, frozenset[str] | None]  # mutant, seed, examples, claims


def try_mutants(
    mutants: Iterable[Mutant], *, seed: int = 0, examples: int = DEFAULT_EXAMPLES, workers: int = 1
) -> Iterator[Kills]:
    """What kills each mutant, in their order, as it comes; in ``workers`` processes."""
    yield from run_jobs([(mutant.id, seed, examples, None) for mutant in mutants], workers)


def run_jobs(jobs: Sequence[Job], workers: int) -> Iterator[Kills]:
    """The answers to jobs, in their order, as they come; in ``workers`` processes."""
    if workers < 2 or len(jobs) < 4:
        yield from map(_job, jobs)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_job, jobs, chunksize=2)


def _job(job: Job) -> Kills:
    name, seed, examples, claims = job
    return try_mutant(load_mutants()[name], claims=claims, seed=seed, examples=examples)


def needed(claims: Iterable[str]) -> frozenset[str]:
    """Claims, and all that they rest on."""
    spec, found = _spec(), set[str]()
    left = list(claims)
    while left:
        claim = left.pop()
        if claim not in found:
            found.add(claim)
            left += spec.claims[claim].rests_on
    return frozenset(found)


@lru_cache(maxsize=1)
def _spec() -> Spec:
    return load_spec()

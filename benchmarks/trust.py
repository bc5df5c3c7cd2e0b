"""How far triu can be trusted: what it catches, whom it accuses, which mistakes it names.  Writes docs/trust.md.

    python benchmarks/trust.py [--seeds 20] [--variant-seeds 50] [--name-seeds 5] [--workers N]

Answers are kept in build/ as they come: a run that was cut short goes on where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from triu.conformance.api import open_check
from triu.conformance.kills import needed, try_mutant
from triu.reference.mutants import load_kills, load_mutants
from triu.spec import Spec, load_spec

sys.path.insert(0, str(Path(__file__).parent))
import elsewhere

ROOT = Path(__file__).parents[1]
VARIANTS = ROOT / "tests" / "variants"
TOUCHING = ("spec", "reference", "conformance", "tests/variants", "tests/elsewhere", "tests/broken")
Job = tuple[str, str, int]  # kind, name, seed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20, help="for the mutants")
    parser.add_argument("--variant-seeds", type=int, default=50, help="for the correct implementations")
    parser.add_argument("--name-seeds", type=int, default=5, help="for the naming of mistakes")
    parser.add_argument("--unknown-seeds", type=int, default=1, help="the same, their own mutants taken away")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    jobs = [
        *(("mutant", name, seed) for seed in range(options.seeds) for name in load_mutants()),
        *(("variant", path.stem, seed) for seed in range(options.variant_seeds) for path in variants()),
        *(("name", str(n), seed) for seed in range(options.name_seeds) for n in range(len(elsewhere.rows()))),
        *(
            ("unknown", str(n), seed)
            for seed in range(options.unknown_seeds)
            for n in range(len(elsewhere.rows()))
        ),
    ]
    answers = run(jobs, options.workers)
    text = page(answers, options)
    (ROOT / "docs" / "trust.md").write_text(text, "utf-8")
    print(text)


def variants() -> list[Path]:
    return sorted(VARIANTS.glob("*.py"))


def run(jobs: Sequence[Job], workers: int) -> dict[Job, Any]:
    """The answer to each job; those of an earlier run on the same sources are taken from its file."""
    path = ROOT / "build" / f"trust-{digest()}.jsonl"
    path.parent.mkdir(exist_ok=True)
    known: dict[Job, Any] = {}
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            job, found = json.loads(line)
            known[tuple(job)] = found
    left = [job for job in jobs if job not in known]
    with (
        path.open("a", encoding="utf-8") as kept,
        ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=one_thread) as pool,
    ):
        running = {pool.submit(answer, job): job for job in left}
        for n, done in enumerate(as_completed(running), 1):
            job = running[done]
            known[job] = done.result()
            kept.write(json.dumps([job, known[job]]) + "\n")
            kept.flush()
            if n % 20 == 0 or n == len(left):
                print(f"\r{n} of {len(left)}", end="", file=sys.stderr, flush=True)
    return {job: known[job] for job in jobs}


def digest() -> str:
    """Of all that an answer depends on."""
    found = hashlib.sha256()
    for folder in TOUCHING:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".toml", ".json"):
                found.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return found.hexdigest()[:12]


def one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@lru_cache(maxsize=1)
def the_spec() -> Spec:
    """One for each process: what is opened for a spec is kept with it."""
    return load_spec()


def answer(job: Job) -> Any:
    kind, name, seed = job
    if kind == "mutant":
        return mutant(name, seed)
    return variant(name, seed) if kind == "variant" else named(int(name), seed, kind == "unknown")


def victims() -> dict[str, list[str]]:
    """For each mutant the claims that show with it that they can kill: one mutant for each claim."""
    kills = load_kills()
    chosen: dict[str, list[str]] = defaultdict(list)
    for claim in load_spec().claims:
        own = [m.id for m in load_mutants().values() if m.claim == claim]
        killed = [name for name, killers in kills.items() if claim in killers]
        if own or killed:
            chosen[(own or killed)[0]].append(claim)
    return chosen


def mutant(name: str, seed: int) -> dict[str, Any]:
    """Whether its claim kills it, whether any does, and which of the claims that it stands for kill it."""
    chosen = load_mutants()[name]
    others = victims()[name]
    found = try_mutant(chosen, claims=needed([chosen.claim, *others]), seed=seed)
    noticed = bool(found.killers) or bool(try_mutant(chosen, claims=of_role(chosen.claim), seed=seed).killers)
    return {"killed": found.killed, "noticed": noticed, "kills": [c for c in others if c in found.killers]}


def of_role(claim: str) -> frozenset[str]:
    """All claims on the role of a claim, and what they rest on."""
    claims = the_spec().claims
    return needed(c.id for c in claims.values() if c.role == claims[claim].role)


def variant(name: str, seed: int) -> list[list[str]]:
    """What is wrong with a correct implementation, by triu: claim, object, verdict."""
    expected = tomllib.loads((VARIANTS / "expected.toml").read_text("utf-8"))[name]["advice"]
    declared = VARIANTS / f"{name}.toml"
    path = VARIANTS / f"{name}.py"
    check = open_check(
        path, spec=the_spec(), seed=seed, in_process=True, conventions=declared if declared.exists() else None
    )
    bad = ("failed", "errored", "inconclusive", "suite_fault")
    verdicts = [v for claim in check.spec.claims.values() for v in check.verdicts(claim)]
    check.close()
    return [[v.claim, v.object, v.verdict] for v in verdicts if v.verdict in bad and v.claim not in expected]


def named(n: int, seed: int, unknown: bool) -> str:
    """Which mistake is named first for a row, or is if its own mutant did not exist; empty for none."""
    outcome = elsewhere.judge(elsewhere.rows()[n], the_spec(), seed, unknown=unknown)
    return (outcome.named or ("",))[0]


def page(answers: dict[Job, Any], options: argparse.Namespace) -> str:
    spec, mutants, table = load_spec(), load_mutants(), elsewhere.rows()
    tried = [(job, found) for job, found in answers.items() if job[0] == "mutant"]
    elsewhere_first = Counter(job[1] for job, found in tried if found["noticed"] and not found["killed"])
    survived = Counter(job[1] for job, found in tried if not found["noticed"])
    killed = sum(found["killed"] for _, found in tried)
    owed = {claim for claims in victims().values() for claim in claims}
    killing: dict[int, set[str]] = defaultdict(set)
    for job, found in tried:
        killing[job[2]].update(found["kills"])
    idle = Counter(claim for seed in killing for claim in owed - killing[seed])
    runs = [(job, found) for job, found in answers.items() if job[0] == "variant"]
    accused = Counter((job[1], *what) for job, found in runs for what in found)
    names = [(table[int(job[1])], found) for job, found in answers.items() if job[0] == "name"]
    right = sum(found == row.mutant for row, found in names)
    strangers = [found for job, found in answers.items() if job[0] == "unknown"]
    wrong = [(row.mutant, found) for row, found in names if found not in ("", row.mutant)]
    lines = [
        "# Trust",
        "",
        f"Made by `python benchmarks/trust.py --seeds {options.seeds} --variant-seeds {options.variant_seeds} "
        f"--name-seeds {options.name_seeds} --unknown-seeds {options.unknown_seeds}`; "
        f"Python {platform.python_version()}, torch {version('torch')}, hypothesis {version('hypothesis')}, "
        "24 examples a claim.",
        "",
        "## What it catches",
        "",
        f"{len(mutants)} mutants, each the reference with one known bug, under {options.seeds} seed(s): "
        f"{percent(killed, len(tried))} of the {len(tried)} runs end with the "
        "failure of the claim whose business the mutant is, shown and not behind another one; "
        f"{percent(sum(elsewhere_first.values()), len(tried))} with that of another claim alone, or of one on which it "
        f"rests; {percent(sum(survived.values()), len(tried))} with none. "
        f"[kill-matrix.md](kill-matrix.md) has all claims on all mutants for seed 0.",
        "",
        *listed(f"{name}: not noticed under {n} of {options.seeds} seeds" for name, n in survived.items()),
        *listed(
            f"{name}: noticed by another claim under {n} of {options.seeds} seeds"
            for name, n in elsewhere_first.items()
        ),
        f"Each of the {len(spec.claims)} claims has a mutant that it is to kill; of those {len(owed)} pairs, "
        f"{len(owed) - len(idle)} are kills under every seed.",
        "",
        *listed(
            f"{claim}: did not kill its mutant in {n} of {options.seeds} seeds" for claim, n in idle.items()
        ),
        "## Whom it accuses",
        "",
        f"{len(variants())} correct implementations in as many styles (`tests/variants/`), all claims, "
        f"{options.variant_seeds} seed(s), {len(runs)} runs: {sum(accused.values())} verdicts that are neither "
        "`passed` nor `unsupported` nor an advice that the file does not follow.",
        "",
        *listed(f"{' '.join(what)}: {n} of {options.variant_seeds} seeds" for what, n in accused.items()),
        "## Which mistakes it names",
        "",
        f"Every mutant was written again in a style other than the reference's (`tests/elsewhere/`, {len(table)} "
        f"candidates), {options.name_seeds} seed(s), {len(names)} runs: the right mistake is named first in "
        f"{percent(right, len(names))}, a wrong one in {percent(len(wrong), len(names))}, none in the rest.",
        "",
        *listed(f"{one}: named {other} ({n})" for (one, other), n in Counter(wrong).items()),
        *(
            [
                "The same candidates as if their own mutant did not exist, so that their mistake is none of the known "
                f"ones: another one is named in {percent(sum(map(bool, strangers)), len(strangers))}. It is the one "
                "that does most nearly the same, and often akin; the report says on how many cases it is so.",
                "",
            ]
            if strangers
            else []
        ),
        "## What this does not show",
        "",
        "- Mutants have one bug each. Submissions with several are told what breaks, mostly without a name for it.",
        "- Mutants, correct implementations and candidates in other styles were written by the people who wrote "
        "triu, with the claims at hand, and triu was mended with them: these are not rates for code that nobody "
        "here has seen.",
        "- A mutant that shows only with other conventions than the baseline's (sequence first, additive masks) is "
        "not among them.",
        "",
    ]
    return "\n".join(lines)


def listed(items: Iterable[str]) -> list[str]:
    found = [f"- {item}" for item in sorted(items)]
    return [*found, ""] if found else []


def percent(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.1f} %)" if whole else "none"


def version(name: str) -> str:
    from importlib.metadata import version as installed

    return installed(name)


if __name__ == "__main__":
    main()

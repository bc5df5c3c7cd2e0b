"""The figures of `make bench`: a complete check against `import torch` and where its time goes, cases per
second, commands without torch, memory.

Machines are shared and noisy, so everything is measured in one run and told as a ratio: pairs of runs in
turn, the median of the ratios.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "lesson_submission.py"
PAIRS = 5


def wall(command: list[str]) -> float:
    """Seconds of one whole process."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, check=False)
    return time.perf_counter() - start


def triu(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("triu")), *arguments]


def pairs(one: Callable[[], float], other: Callable[[], float]) -> tuple[float, float, float]:
    """Medians of both, measured in turn after one warm-up each, and of their ratios."""
    one(), other()
    measured = [(one(), other()) for _ in range(PAIRS)]
    ratios = [a / b for a, b in measured]
    return (
        statistics.median(a for a, _ in measured),
        statistics.median(b for _, b in measured),
        statistics.median(ratios),
    )


def start_up() -> list[list[object]]:
    check, torch, ratio = pairs(
        lambda: wall(triu("check", str(EXAMPLE))), lambda: wall([sys.executable, "-c", "import torch"])
    )
    rows = [
        ["triu check on a complete homework, all claims", f"{check:.2f} s"],
        ["python -c 'import torch'", f"{torch:.2f} s"],
        ["ratio (at most 5)", verdict(ratio, ratio <= 5, "×")],
        ["largest process of the check", memory()],
    ]
    for arguments in (("claims",), ("--help",)):
        seconds = statistics.median(wall(triu(*arguments)) for _ in range(PAIRS))
        rows.append([f"triu {' '.join(arguments)} (under 0.3 s)", verdict(seconds, seconds < 0.3, " s")])
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "triu.conformance", "claims"],
        capture_output=True,
        text=True,
        check=False,
    ).stderr
    rows.append(["torch imported by triu claims", "yes, MISSED" if "| torch" in loaded else "no"])
    return rows


def memory() -> str:
    """The largest process of a check, its worker included (under 800 MB for both together)."""
    wall(triu("check", str(EXAMPLE)))
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # Linux counts in KB
    return f"{largest:.0f} MB" + ("" if 2 * largest < 800 else ", MISSED")


def where_time_goes() -> list[list[object]]:
    """A complete check in this process: seconds by role, and the candidate's own calls in a bare loop."""
    from triu.conformance.api import one_thread, open_check
    from triu.conformance.candidates import worker

    spent, calls = 0.0, 0
    prepare = worker.Worker._prepare

    def timed(self: worker.Worker, call: Mapping[str, Any], body: bytes) -> Any:
        function, *rest = prepare(self, call, body)

        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal spent, calls
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent += time.perf_counter() - start
                calls += 1

        return run, *rest

    with mock.patch.object(worker.Worker, "_prepare", timed):
        start = time.perf_counter()
        opened = open_check(EXAMPLE, in_process=True)
        roles: dict[str, float] = {"opening and binding": time.perf_counter() - start}
        with one_thread():
            for claim in opened.spec.claims.values():
                start = time.perf_counter()
                opened.engine.verdicts(claim)
                roles[claim.role] = roles.get(claim.role, 0.0) + time.perf_counter() - start
        opened.close()
    total = sum(roles.values())
    first = sorted(roles.items(), key=lambda item: -item[1])[:10]
    rows: list[list[object]] = [["all claims, in one process that has imported torch", f"{total:.2f} s"]]
    rows.append([f"  of it in the candidate: its {calls} calls in a bare loop", f"{spent:.2f} s"])
    return rows + [[f"  {name}", f"{seconds:.2f} s"] for name, seconds in first]


def engine_instances() -> tuple[int, float]:
    """Attention instances that the engine checks against the oracle, and the seconds that takes.

    A case is a batch; an instance is one of its B·h attention problems, each compared entry by entry.
    """
    from triu.conformance.api import one_thread, open_check
    from triu.conformance.engine import draw
    from triu.conformance.engine.run import Run

    opened = open_check("baseline", in_process=True, examples=200)
    claim = opened.spec.claims["attention.masked"]
    (subject,) = [s for s in opened.candidate.filling("attention") if s.binding.name == "attention"]
    run = Run(opened.engine, claim, subject, (), "attention")
    assert run.choices is not None
    with one_thread():
        start = time.perf_counter()
        result = run.verdict()
        seconds = time.perf_counter() - start
    assert result.verdict == "passed", result
    cases = draw.stream(run.choices, claim.requires, 200, 0)
    return sum(case["B"] * case["h"] for case in cases), seconds


def naive_instances() -> tuple[int, float]:
    """The same property with every array drawn by Hypothesis, element by element: an instance an example."""
    import torch
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st
    from hypothesis.extra.numpy import arrays
    from triu.conformance.api import one_thread
    from triu.reference.baseline import attention

    numbers = st.integers(-30, 30).map(lambda n: n / 10)
    count = 0

    @st.composite
    def problems(draw: Callable[..., object]) -> tuple[np.ndarray, ...]:
        sizes = [draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.sampled_from([1, 2, 3, 4, 8]))]
        T, S, d = sizes
        dv = draw(st.sampled_from([1, 2, 3, 5]))
        shapes = [(T, d), (S, d), (S, dv)]
        query, key, value = (draw(arrays(np.float64, shape, elements=numbers)) for shape in shapes)
        mask = draw(arrays(np.bool_, (T, S)))
        mask[:, 0] = True
        return query, key, value, mask

    @settings(
        max_examples=200,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(problems())
    def check(problem: tuple[np.ndarray, ...]) -> None:
        nonlocal count
        count += 1
        query, key, value, mask = (torch.from_numpy(array) for array in problem)
        output, _ = attention(query, key, value, mask)
        expected, _ = attention(query.double(), key.double(), value.double(), mask)
        assert np.allclose(output.numpy(), expected.numpy(), atol=1e-12)

    with one_thread():
        start = time.perf_counter()
        check()
        return count, time.perf_counter() - start


def throughput() -> list[list[object]]:
    engine_instances(), naive_instances()
    ratios, ours, theirs = [], [], []
    for _ in range(3):
        one, seconds = engine_instances()
        ours.append(one / seconds)
        other, seconds = naive_instances()
        theirs.append(other / seconds)
        ratios.append(ours[-1] / theirs[-1])
    ratio = statistics.median(ratios)
    return [
        ["attention instances a second, engine", f"{statistics.median(ours):.0f}"],
        ["the same with hypothesis.extra.numpy.arrays", f"{statistics.median(theirs):.0f}"],
        ["ratio (at least 10)", verdict(ratio, ratio >= 10, "×")],
    ]


def verdict(value: float, reached: bool, unit: str) -> str:
    return f"{value:.2f}{unit}" + ("" if reached else ", MISSED")


def main() -> None:
    rows = [*start_up(), *where_time_goes(), *throughput()]
    print(tabulate(rows, ["what", "measured"], tablefmt="simple"))
    print(
        f"\nMedians of {PAIRS} pairs (3 for the throughput). An instance is one attention problem of a batch,"
    )
    print("B·h of them to a case of the engine, one to an example of the other.")


if __name__ == "__main__":
    main()

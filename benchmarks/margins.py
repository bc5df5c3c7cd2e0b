"""How much of the allowed error correct candidates use: what the constant in `engine/tolerance.py` rests on.

Prints, for each candidate, the largest error seen over the error allowed, over several seeds, by claim.
The constant is good where correct code stays well below 1 and every real fault lies far above it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tabulate import tabulate
from triu.conformance import check

ROOT = Path(__file__).resolve().parents[1]
CANDIDATES = ["baseline", "numpy", "torch", *map(str, sorted((ROOT / "examples").glob("*.py")))]


def main(seeds: int = 5, candidates: list[str] | None = None) -> None:
    rows = []
    for target in candidates or CANDIDATES:
        largest: dict[str, float] = {}
        for seed in range(seeds):
            for v in check(target, seed=seed, in_process=True).verdicts:
                if v.margin is not None and v.claim.split(".")[1] not in (
                    "trace-4",
                    "cross-4-6",
                    "cross-3-2",
                    "numpy-4",
                    "matrix-4",
                    "five-and-six",
                ):
                    largest[v.claim] = max(largest.get(v.claim, 0.0), v.margin)
        worst = sorted(largest.items(), key=lambda item: -item[1])[:3]
        rows.append([Path(target).name, *(f"{claim} {margin:.2g}" for claim, margin in worst)])
    print(tabulate(rows, ["candidate", "largest", "second", "third"], tablefmt="simple"))


if __name__ == "__main__":
    main(candidates=sys.argv[1:] or None)

"""Draws streams of cases with Hypothesis, and lets it find the smallest case that still fails.

A stream depends on the domain, the number of examples and the seed alone, so that claims with the same
domain see the same cases and share the candidate's answers.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from random import Random
from typing import Any

from hypothesis import Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky, NoSuchExample, Unsatisfiable

from ...spec import Formula
from .cases import Case

SHRINK_CALLS = 300
EXHAUSTIVE = 80
_streams: dict[tuple[Any, ...], tuple[Case, ...]] = {}

Choices = Mapping[str, tuple[Any, ...]]


def _random(seed: int, *parts: object) -> Random:
    digest = hashlib.sha256(repr((seed, *parts)).encode()).digest()
    return Random(int.from_bytes(digest[:8], "big"))


ROOTS = 1 << 40
DRAWN = 5040  # divisible by 1 to 10, so that short lists of choices are drawn from evenly
# Hypothesis mixes literals of whatever local modules are loaded into integers that admit them. No literal is
# found up here, so that the same seed gives the same cases in any process.
FAR = 7_919_000_000_000


def _number(count: int) -> st.SearchStrategy[int]:
    """A number from 0 to count - 1, shrinking to 0."""
    return st.integers(FAR, FAR + count - 1).map(lambda number: number - FAR)


def strategy(choices: Choices, requires: Sequence[Formula]) -> st.SearchStrategy[Case]:
    """Cases of a domain: every dimension from its choices, smallest first, and a seed."""
    names = tuple(choices)

    def build(numbers: tuple[int, ...]) -> Case:
        picked = {name: choices[name][n] for name, n in zip(names, numbers, strict=False)}
        return Case({**picked, "seed": numbers[-1]})

    drawn = st.tuples(*(_number(len(choices[name])) for name in names), _number(DRAWN)).map(build)
    return drawn.filter(lambda case: all(formula(case) for formula in requires)) if requires else drawn


def is_enumerable(choices: Choices) -> bool:
    """At most one dimension with more than one value, and few of them: every value is tried."""
    wide = [values for values in choices.values() if len(values) > 1]
    return len(wide) <= 1 and all(len(values) <= EXHAUSTIVE for values in wide)


def stream(choices: Choices, requires: Sequence[Formula], examples: int, seed: int) -> tuple[Case, ...]:
    """The cases to try: all of them for a small domain, otherwise about ``examples`` drawn ones.

    Drawing is what Hypothesis is slow at, so it draws once for a seed; each domain turns that into values of
    its own, from another starting point.
    """
    key = (repr(sorted(choices.items())), tuple(f.text for f in requires), examples, seed)
    cached = _streams.get(key)
    if cached is None:
        if len(_streams) > 2000:
            _streams.clear()
        cached = _streams[key] = _cases(choices, requires, examples, seed)
    return cached


def _cases(choices: Choices, requires: Sequence[Formula], examples: int, seed: int) -> tuple[Case, ...]:
    if is_enumerable(choices):
        every = [
            Case({**dict(zip(choices, values, strict=True)), "seed": seed % 9999})
            for values in product(*choices.values())
        ]
        return tuple(case for case in every if all(formula(case) for formula in requires))
    shift = _random(seed, repr(sorted(choices.items())))
    start = {name: shift.randrange(DRAWN) for name in (*choices, "seed")}
    found: dict[Case, None] = {}
    for drawn in _drawn(tuple(sorted(choices)), examples * (3 if requires else 1), seed):
        numbers = dict(zip(sorted(choices), drawn, strict=False))
        values = {
            name: options[(numbers[name] + start[name]) % len(options)] for name, options in choices.items()
        }
        case = Case({**values, "seed": (drawn[-1] + start["seed"]) % DRAWN})
        if all(formula(case) for formula in requires):
            found[case] = None
        if len(found) >= examples:
            break
    return tuple(found)


_roots: dict[tuple[int, int], list[int]] = {}


def _drawn(names: tuple[str, ...], examples: int, seed: int) -> Iterator[tuple[int, ...]]:
    """Vectors with a number per dimension and one for the seed.

    Hypothesis likes to vary what it drew before: of vectors that it draws number by number, more than half
    share all but one or two with an earlier one.  So it draws roots, and the numbers come from these.
    """
    for root in _drawn_roots(examples, seed):
        numbers = _random(root, names)
        yield tuple(numbers.randrange(DRAWN) for _ in (*names, "seed"))


def _drawn_roots(examples: int, seed: int) -> list[int]:
    key = (examples, seed)
    if key not in _roots:
        if len(_roots) > 200:
            _roots.clear()
        found: dict[int, None] = {}

        def collect(root: int) -> bool:
            found[root] = None
            return len(found) >= examples

        _search(_number(ROOTS), collect, 2 * examples, _random(seed, "roots"), shrink=False)
        _roots[key] = list(found)
    return _roots[key]


def forget() -> None:
    """Drop the streams that are kept: another seed has others."""
    _streams.clear()
    _roots.clear()


def seek(
    choices: Choices, requires: Sequence[Formula], wanted: Formula, count: int, seed: int
) -> tuple[Case, ...]:
    """Cases that show a piece of evidence which the stream happened to miss, made on purpose."""
    random = _random(seed, wanted.text, repr(sorted(choices.items())))
    witnesses = list(_witnesses(choices, requires, wanted))
    found: dict[Case, None] = {}
    for _ in range(8 * count if witnesses else 0):
        drawn = {name: random.choice(values) for name, values in choices.items()}
        case = Case({**drawn, **random.choice(witnesses), "seed": random.randrange(DRAWN)})
        if all(formula(case) for formula in (*requires, wanted)):
            found[case] = None
        if len(found) >= count:
            break
    return tuple(found)


def reachable(choices: Choices, requires: Sequence[Formula], wanted: Formula) -> bool:
    """Whether any case of the domain shows the evidence at all."""
    return next(_witnesses(choices, requires, wanted), None) is not None


def _witnesses(choices: Choices, requires: Sequence[Formula], wanted: Formula) -> Iterator[Mapping[str, Any]]:
    """Values of the dimensions that the formulas speak of, for which they hold."""
    names = sorted({*wanted.names, *(n for f in requires for n in f.names)} & choices.keys())
    for values in product(*(choices[name] for name in names)):
        case = {**dict(zip(names, values, strict=True)), "seed": 0}
        if wanted(case) and all(formula(case) for formula in requires):
            yield {name: case[name] for name in names}


def smallest(
    choices: Choices, requires: Sequence[Formula], failing: Case, fails: Callable[[Case], bool], seed: int
) -> Case:
    """The smallest case that fails in the same way, as far as a bounded search finds it."""
    if len(choices) == 1 and is_enumerable(choices):
        return failing
    best = [failing]
    calls = 0
    order = {name: {value: n for n, value in enumerate(values)} for name, values in choices.items()}

    def size(case: Case) -> tuple[int, ...]:
        return (sum(order[name].get(case[name], 0) for name in choices), case["seed"])

    def condition(case: Case) -> bool:
        nonlocal calls
        calls += 1
        if calls > SHRINK_CALLS:
            return False
        if not fails(case):
            return False
        if size(case) < size(best[0]):
            best[0] = case
        return True

    narrowed = {name: values[: order[name][failing[name]] + 1] for name, values in choices.items()}
    _search(strategy(narrowed, requires), condition, 60, _random(seed, "shrink", failing.items_), shrink=True)
    return best[0]


def _search(
    cases: st.SearchStrategy[Any],
    condition: Callable[[Any], bool],
    examples: int,
    random: Random,
    *,
    shrink: bool,
) -> None:
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    options = settings(
        max_examples=max(1, examples), phases=phases, deadline=None, database=None, derandomize=False
    )
    with contextlib.suppress(NoSuchExample, Unsatisfiable, Flaky):
        find(cases, condition, settings=options, random=random)

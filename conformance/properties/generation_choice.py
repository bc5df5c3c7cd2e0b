"""Properties of the choice in generation: the largest logit of the last row, or a draw from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from ..candidates.errors import CallFailed
from ..candidates.generation import HEAT
from ..engine.cases import Inputs, OutOfDomain
from ..engine.trial import Difference, Trial, Violation
from .generation import called, fed_of, subject_of, taken_of

__all__ = [
    "greedy_choice",
    "greedy_when_cold",
    "sampled_choice",
]


def greedy_choice(trial: Trial) -> None:
    """The token taken at each step leads the last row of the logits."""
    results = called(trial)
    fed, plan = fed_of(results), results["plan"]
    for k, token in enumerate(taken_of(trial, results)):
        target, best, second = fed[k]
        if token == best[0]:
            continue
        row = results["table"].asked[k].rows[0]
        prefix = tuple(target[0].tolist())
        at = [n for n in range(len(prefix) - 1) if plan.chosen(row, prefix[: n + 1]) == token]
        logits = plan.logits(row, prefix)
        why = "not the largest"
        if at:
            why = f"the largest at position {at[0]}, not at the last position, {len(prefix) - 1}"
        elif 0 <= token < plan.V and token == int(logits.argmin()):
            why = "the smallest"
        elif token == second[0]:
            why = "the second largest"
        raise Violation(
            f"at step {k + 1} the model saw {list(prefix)} and its last row of logits leads at {best[0]}, but "
            f"{token} was taken: its logit is {why}",
            Difference(best[0], token),
        )


def greedy_when_cold(trial: Trial) -> None:
    """At a temperature near 0 the token taken at each step leads the last row of the logits."""
    subject = subject_of(trial)
    try:
        results = called(trial)
    except CallFailed as error:
        if error.refuses:
            raise trial.skip("it refuses a temperature near 0") from None
        raise
    target, best, token = next(_others_taken(trial, results), (None, 0, 0))
    if target is None:
        return
    cold, hot = HEAT["cold"], HEAT["hot"]
    turned = _greedy_when_hot(trial)
    raise Violation(
        f"with {subject.given['temperature'].name} = {cold} another token was taken after {target.tolist()} than the "
        f"one with the largest logit, which leads by 1, and divided by {cold} by {1 / cold:g}"
        + (f"; but at {hot:g} that one is taken every time, as if logits were multiplied" if turned else ""),
        Difference(best, token),
    )


def _greedy_when_hot(trial: Trial) -> bool:
    """Whether at a high temperature the best token is taken every time; no, where it does not answer."""
    with trial.aside(), suppress(CallFailed, OutOfDomain, Violation):
        results = trial.subject.run(Inputs(trial.case.replaced(heat="hot", new_tokens=8), {}))
        return next(_others_taken(trial, results), None) is None
    return False


def _others_taken(trial: Trial, results: dict[str, Any]) -> Iterator[tuple[np.ndarray, int, int]]:
    """Prefix, best token and the other one that was taken, where it was not the best one."""
    for (target, best, _), token in zip(fed_of(results), taken_of(trial, results), strict=False):
        if token != best[0]:
            yield target[0], best[0], token


RUNS = 40  # at 3 draws or more each, of probability 0.27 for the second token: none in all of them has 4e-17


def sampled_choice(trial: Trial) -> None:
    """Where all probability lies on two tokens, one of them is taken at each step, and each of them sometimes."""
    firsts = seconds = 0
    for run in range(
        RUNS
    ):  # each with another prompt and seed: a loop may seed itself, and draw the same each time
        results = trial.subject.run(Inputs(trial.case.replaced(seed=trial.case["seed"] + run), {}))
        fed = fed_of(results)
        for k, token in enumerate(taken_of(trial, results)):
            target, best, second = fed[k]
            if token not in (best[0], second[0]):
                raise Violation(
                    f"at step {k + 1} the model saw {target[0].tolist()}; by its last row of logits only {best[0]} "
                    f"and {second[0]} have any probability, but {token} was taken",
                    Difference([best[0], second[0]], token),
                )
            firsts, seconds = firsts + (token == best[0]), seconds + (token == second[0])
        if firsts and seconds:
            return
    raise Violation(
        f"in {RUNS} runs one of two tokens was taken every time, though they have probabilities 0.73 and 0.27",
        Difference("both tokens", "the likelier one" if firsts else "the less likely one"),
    )

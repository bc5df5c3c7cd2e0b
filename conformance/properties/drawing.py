"""Properties of tokens: drawn from the distribution of the next token, and the likeliest one.

Where a function only draws, its draws are counted; ``engine/chance.py`` says when a count is off by more than
chance.  Tokens that are not kept are never drawn, which is no matter of chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..engine.chance import improbable, surprise
from ..engine.trial import Difference, Inputs, Trial, Violation, number
from .sampling import NEAR, at_zero, described, expected, greedy_at_zero, listed, row_of, shown

__all__ = [
    "draws_differ",
    "draws_follow",
    "likeliest_at_zero",
    "rows_drawn_apart",
    "takes_largest",
]


def _tokens(results: Mapping[str, Any], V: int) -> np.ndarray:
    tokens = results["tokens"]
    if ((tokens < 0) | (tokens >= V)).any():
        wrong = int(tokens[(tokens < 0) | (tokens >= V)][0])
        raise Violation(f"it gave the token {wrong}; there are the tokens 0 to {V - 1}")
    return tokens


def draws_follow(trial: Trial) -> None:
    """Tokens that are not kept never come up, the others as often as the distribution says."""
    results, right = trial.call(), expected(trial.inputs)
    if "probabilities" in results:
        trial.same(results["probabilities"], right, f"{described(trial.inputs)} the probability", NEAR)
        return
    _compare_draws(_tokens(results, right.shape[-1]), right, described(trial.inputs))


def _compare_draws(tokens: np.ndarray, right: np.ndarray, settings: str) -> None:
    """Tokens (draws, B) against probabilities (B, V)."""
    V = right.shape[-1]
    for b in range(len(right)):
        counts = np.bincount(tokens[:, b], minlength=V)
        lost = np.flatnonzero((counts > 0) & (right[b] == 0))
        place = f"{row_of(right, b)}{settings}"
        if len(lost):
            raise Violation(
                f"{place} token {lost[0]} was drawn {counts[lost[0]]} times in {counts.sum()}; "
                f"only {listed(right[b] > 0)} may come up",
                Difference(shown(right[b]), shown(counts / counts.sum())),
            )
        if improbable(counts, len(tokens), right[b], right.size).any():
            token = int(surprise(counts, len(tokens), right[b]).argmin())
            raise Violation(
                f"{place} token {token} was drawn {counts[token]} times in {counts.sum()}; its probability is "
                f"{right[b][token]:.4g}, so about {right[b][token] * counts.sum():.0f} are expected (a correct "
                "sampler is so far off in fewer than 1 of 1e9 comparisons)",
                Difference(shown(right[b]), shown(counts / counts.sum())),
            )


def _always_likeliest(trial: Trial, inputs: Inputs, token: int) -> bool:
    """Whether the likeliest token is taken, also where the logits (B, V) are turned so that it is another one.

    Each token is the likeliest one in turn: a draw by chance or from a fixed seed does not follow all of them.
    """
    logits, V = inputs["logits"], trial.case["V"]
    if token != int(logits[0].argmax()):
        return False
    with trial.aside():
        return all(
            set(_tokens(trial.call(inputs.replaced(logits=turned)), V)[:, 0].tolist())
            == {int(turned[0].argmax())}
            for turned in (np.roll(logits, n, axis=-1) for n in range(1, V))
        )


def draws_differ(trial: Trial) -> None:
    """Calls with the same logits do not all give the same token.

    Forty draws from ten tokens of which none has more than 0.4 agree by chance in fewer than 0.4 ** 39 < 1e-15
    of all runs.
    """
    inputs = trial.inputs.replaced(apart=True)
    results = trial.call(inputs)
    if "probabilities" in results:
        raise trial.skip("it returns the distribution and draws nothing")
    tokens = _tokens(results, trial.case["V"])[:, 0]
    if len(set(tokens.tolist())) > 1:
        return
    why = (
        "that is the likeliest one: it does not sample"
        if _always_likeliest(trial, inputs, int(tokens[0]))
        else "it draws with the same random numbers each time, as after a fixed seed"
    )
    raise Violation(
        f"40 calls with the same logits gave token {tokens[0]} each time, though ten tokens are about equally "
        f"likely; {why}",
        Difference(shown(expected(trial.inputs)[0]), int(tokens[0])),
    )


def rows_drawn_apart(trial: Trial) -> None:
    """Equal rows of one batch do not all get the same token; by chance they do in fewer than 1e-15 of all runs."""
    results = trial.call()
    if "probabilities" in results:
        raise trial.skip("it returns the distribution and draws nothing")
    tokens = _tokens(results, trial.case["V"])
    if len(set(tokens[:, 0].tolist())) == 1:
        why = (
            "which is the likeliest one; a row alone is drawn at random, so rows are not filtered each by itself"
            if _always_likeliest(trial, trial.inputs, int(tokens[0, 0]))
            else "though ten are about equally likely; every row needs a random number of its own"
        )
        raise Violation(f"all {len(tokens)} equal rows of one batch got token {tokens[0, 0]}, {why}")


def likeliest_at_zero(trial: Trial) -> None:
    """Temperature 0 takes the likeliest token, or is an error; or means off where that is declared."""
    logits = trial.inputs["logits"]
    between = np.sort(logits, axis=-1)[:, -2:].mean(axis=-1, keepdims=True)
    logits = (logits - between).astype(logits.dtype)  # one is above 0: a division by 0 leaves it on top
    results = at_zero(trial, logits)
    if results is None:
        return
    if "probabilities" in results:
        greedy_at_zero(trial)
        return
    tokens, best = _tokens(results, logits.shape[-1]), logits.argmax(axis=-1)
    if trial.inputs["zero"] == "off":
        _compare_draws(tokens, expected({"logits": logits}), "at temperature 0, which is off,")
    elif not tokens.any() and not _at_zero_turned(trial, logits).any():
        raise trial.skip("at temperature 0 it gives token 0 whatever the logits are")  # argmax of NaN
    elif (tokens != best).any():
        b = int((tokens != best).any(axis=0).argmax())
        raise Violation(
            f"{row_of(logits, b)}at temperature 0 token {tokens[tokens[:, b] != best[b], b][0]} was drawn; "
            f"the likeliest is {best[b]}",
            Difference(int(best[b]), sorted({int(token) for token in tokens[:, b]})),
        )


def _at_zero_turned(trial: Trial, logits: np.ndarray) -> np.ndarray:
    """The tokens at temperature 0 with the vocabulary in reverse, where the largest logit is another token's."""
    results = at_zero(trial, np.ascontiguousarray(logits[:, ::-1]))
    return np.ones(1) if results is None else results["tokens"]


def takes_largest(trial: Trial) -> None:
    """The token is the one with the largest logit, or one of them where several are equal."""
    results, logits = trial.call(), trial.inputs["logits"]
    if "probabilities" in results:
        right = expected(trial.inputs)
        trial.same(results["probabilities"], right, f"{described(trial.inputs)} the probability", NEAR)
        return
    tokens = _tokens(results, logits.shape[-1])
    for b, row in enumerate(logits):
        wrong = tokens[row[tokens[:, b]] < row.max(), b]
        if len(wrong):
            raise Violation(
                f"{row_of(logits, b)}token {wrong[0]} was taken, whose logit is {number(row[wrong[0]])}; "
                f"the largest is {number(row.max())}",
                Difference(int(row.argmax()), int(wrong[0])),
            )

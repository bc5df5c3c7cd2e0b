"""Properties of scheduled sampling: whose tokens came out, how often, and whether draws are independent.

``engine/chance.py`` says when a count is off by more than chance.
"""

from __future__ import annotations

import numpy as np

from ..engine.chance import improbable
from ..engine.trial import Difference, Trial, Violation

__all__ = ["mixes_exactly", "mixes_given_tokens", "mixes_in_between", "mixes_independently"]


def mixes_given_tokens(trial: Trial) -> None:
    """Nothing but the two tokens of a place."""
    found = trial.call()["model"]
    if (found < 0).any():
        share = int((found < 0).sum())
        raise Violation(
            f"{share} of {found.size} tokens are neither the teacher's token of their place nor the model's",
            Difference("the teacher's or the model's token", f"{share} others"),
        )


def mixes_exactly(trial: Trial, model: bool) -> None:
    """All of one side."""
    found = trial.call()["model"]
    wrong = int((found != int(model)).sum())
    if wrong:
        p, side = (1, "model's") if model else (0, "teacher's")
        raise Violation(
            f"at probability {p} of the model's token, {wrong} of {found.size} tokens are not the {side}",
            Difference(f"{found.size} of {found.size}", f"{found.size - wrong} of {found.size}"),
        )


def mixes_in_between(trial: Trial) -> None:
    """The share of the model's tokens; draws that one coin decides together are counted once."""
    found, p = _coins(trial), trial.case["percent"] / 100
    count, draws = int((found == 1).sum()), found.size
    if improbable(count, draws, p):
        raise Violation(
            f"at probability {p:g} the model's token came {count} times in {draws} draws, "
            f"a share of {count / draws:.3f}",
            Difference(f"about {p * draws:.0f} of {draws}", f"{count} of {draws}"),
        )


def _coins(trial: Trial) -> np.ndarray:
    """One entry for each draw, (calls, B, T): where one decides for several tokens, the first of them is taken.

    Whether one draw may decide for several is told by mixes_independently.
    """
    found = trial.call()["model"]
    for axis in (2, 1):
        first = np.take(found, [0], axis)
        if (found == first).all():
            found = first
    return found


def mixes_independently(trial: Trial) -> None:
    """At p = 1/2 neighbours agree half of the time: differences of fair, independent bits are so too."""
    coins = trial.call()["coins"]
    places = (
        (0, "from one call to the next"),
        (2, "from one position to the next"),
        (1, "from one row of the batch to the next"),
    )
    found = []
    for axis, where in places:
        pairs = coins.shape[axis] - 1
        if pairs < 1:
            continue
        left, right = np.take(coins, range(pairs), axis), np.take(coins, range(1, pairs + 1), axis)
        agree, draws = int((left == right).sum()), left.size
        if improbable(agree, draws, 0.5):
            found.append((where, agree, draws))
            if axis == 0 and agree == draws:
                break  # one call, again and again: it tells nothing of places
    if found:
        where, agree, draws = found[0]
        also = "".join(f", and {other} too" for other, *_ in found[1:])
        always = ": one draw decides for all of them" if agree == draws else ""
        raise Violation(
            f"{where} the choice stayed the same in {agree} of {draws} cases, "
            f"where independent draws at probability 0.5 agree in about half{always}{also}",
            Difference(f"about {draws // 2} of {draws}", f"{agree} of {draws}"),
        )

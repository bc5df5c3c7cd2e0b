"""Layers of another known kind, which the reference can neither confirm nor refute.

Positions may act inside attention (rotary, ALiBi, learned distances), and queries and keys may be normed, all of it
computed on the fly, so that no constant shows it.  Such a layer departs from the reference in its scores alone:
its values are projected, weighed by numbers that sum to 1, and merged as they should be.  A wrong scale or a missing
projection shows in a layer that knows no order and is not blind to the size of what it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from .base_state import Rule, is_gain
from .cases import Inputs
from .matching import LOOSE, Blueprint, Matcher

CLEAR = 1e-3  # beside the largest entry: far above rounding
BLIND = 1e-2  # the ε inside a norm keeps it from being quite blind to size


class Kin(Matcher):
    """Tells layers of other kinds by what they do in the base state."""

    def other_block(self, blocks: Iterable[tuple[str, Blueprint]]) -> str:
        """Which of the given blocks it is, in words, or nothing."""
        known = list(blocks)
        for observed in self._answers():
            for words, blueprint in known:
                if self._far(observed, self._in_base(blueprint)) < LOOSE:
                    return words
        return ""

    def other_scores(self, forms: Sequence[Blueprint], name: str, default: Callable[[Inputs], Inputs]) -> str:
        """How it scores otherwise than the reference while all else is the same, in words, or nothing.

        ``name`` is the sequence that attends to itself, ``default`` the inputs that follow from it.
        """
        given = self.probe[name]

        def probe(rows: np.ndarray) -> Inputs:
            return default(self.probe.replaced(**{name: rows.copy()}))

        lone = name == "query"  # attention alone, linear in its values; in a block norms are around it
        for _ in self._answers():
            first, second = (np.broadcast_to(given[:, [n]], given.shape) for n in (0, 1))
            expected = self.layer.output(probe(first))
            if not any(self._alike(expected, blueprint, probe(first)) for blueprint in forms):
                continue
            if lone and not self._weighs(probe, first, second):
                continue
            turned = given.copy()
            turned[:, :-1] = given[:, -2::-1]
            before, after = (self.layer.output(probe(rows)) for rows in (given, turned))
            if self._far(after[:, -1], before[:, -1]) > CLEAR:
                return "its attention tells positions apart by itself"
            if lone and self._is_blind_to_size(probe, before):
                return "its attention norms queries and keys"
        return ""

    def _answers(self) -> Iterable[np.ndarray]:
        """The output in the base state, for each way in which packed weights may lie."""
        for together in (0, 1):
            base = replace(self.base, together=together)
            self._set(base)
            inside = {w.name: w.value for w in self.own if self._is_inside(base, w.value)}
            if inside:
                self.layer.load(inside)
            yield self.layer.output(self.probe)

    @staticmethod
    def _is_inside(base: Rule, value: np.ndarray) -> bool:
        """The gain of a norm within heads, which has another size than the model's."""
        return is_gain(value) and base.kind(value.shape, True) in ("vector", "attention")

    def _alike(self, observed: np.ndarray, blueprint: Blueprint, inputs: Inputs) -> bool:
        self._prepare(blueprint.module, self.base)
        return self._far(observed, self._run(blueprint, inputs)) < LOOSE

    def _weighs(self, probe: Callable[[np.ndarray], Inputs], first: np.ndarray, second: np.ndarray) -> bool:
        """Over two kinds of rows every output lies between what either kind alone gives."""
        one, other = (self.layer.output(probe(rows)) for rows in (first, second))
        mixed = first.copy()
        mixed[:, 1::3], mixed[:, 2::3] = second[:, 1::3], second[:, 2::3]
        apart, off = one - other, self.layer.output(probe(mixed)) - other
        share = (off * apart).sum(-1, keepdims=True) / (apart * apart).sum(-1, keepdims=True)
        return bool(
            np.abs(off - share * apart).max() < LOOSE * np.abs(apart).max()
            and (share > -LOOSE).all()
            and (share < 1 + LOOSE).all()
        )

    def _is_blind_to_size(self, probe: Callable[[np.ndarray], Inputs], before: np.ndarray) -> bool:
        """Inputs of another size give outputs of that size, although the layer is not linear."""
        given = probe(self.rng.normal(0.0, 1.0, before.shape))
        name = "query"
        grown = [self.layer.output(probe(self.probe[name] * by)) / by for by in (0.3, 3.0)]
        summed = self.layer.output(probe(self.probe[name] + given[name]))
        linear = self._far(summed, before + self.layer.output(given)) < CLEAR
        return not linear and all(self._far(output, before) < BLIND for output in grown)

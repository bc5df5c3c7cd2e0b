"""The plan of a case of generation: which token follows each prefix, and the logits that say so.

Along the plan every prefix has one next token; any other prefix has another one, which the prefix decides.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Plan:
    """What a case has in mind: the ids, where every row starts, its source, and its next tokens.

    ``starts`` (B, P), ``sources`` (B, S), ``tokens`` (B, n) are integers; a row's tokens end with ``eos`` if it
    is to end there.
    """

    V: int
    bos: int
    eos: int
    pad: int
    starts: np.ndarray
    sources: np.ndarray
    tokens: tuple[tuple[int, ...], ...]
    seed: int
    lowered: bool = False  # all logits below zero
    likely: int = 0  # all probability on so many tokens; 0: the logits are ordinary ones

    def next_token(self, row: int, prefix: tuple[int, ...]) -> int | None:
        """The planned token after a prefix, None where the prefix is not on the way."""
        start = tuple(int(n) for n in self.starts[row])
        count = len(prefix) - len(start)
        tokens = self.tokens[row]
        if 0 <= count < len(tokens) and prefix == (*start, *tokens[:count]):
            return tokens[count]
        return None

    def chosen(self, row: int, prefix: tuple[int, ...]) -> int:
        """The token with the largest logit after a prefix, planned or not."""
        planned = self.next_token(row, prefix)
        return self._off(row, prefix, 0) if planned is None else planned

    def leaders(self, row: int, prefix: tuple[int, ...]) -> tuple[int, int]:
        """The tokens with the largest and the second largest logit after a prefix."""
        return self.chosen(row, prefix), self._off(row, prefix, 1)

    def logits(self, row: int, prefix: tuple[int, ...]) -> np.ndarray:
        """(V,) logits after a prefix: one largest by 1, a clear second, the smallest larger in size."""
        code = self._code(row, prefix)
        values = np.round(np.linspace(-2.0, 2.0, self.V), 2)
        values = values[np.argsort(np.sin(np.arange(1, self.V + 1) * (1.0 + code)))]
        top, second = self.leaders(row, prefix)
        values[self._off(row, prefix, 2)] = -6.0
        values[second], values[top] = 3.0, 4.0
        if self.likely:
            others = [n for n in range(self.V) if n not in (top, second)[: self.likely]]
            values[others] -= 60.0
        return values - 10.0 if self.lowered else values

    def _off(self, row: int, prefix: tuple[int, ...], rank: int) -> int:
        """An ordinary token that the prefix alone decides, other than the planned one."""
        planned = self.next_token(row, prefix)
        k = len(prefix) - self.starts.shape[1]
        here = self.tokens[row][k] if 0 <= k < len(self.tokens[row]) else None
        ids = [n for n in self.ordinary if n not in (planned, here)]
        return ids[(self._code(row, prefix) + rank) % len(ids)]

    @property
    def ordinary(self) -> list[int]:
        """Ids that are none of the special ones."""
        return [n for n in range(self.V) if n > 3 and n not in (self.bos, self.eos, self.pad)]

    def _code(self, row: int, prefix: tuple[int, ...]) -> int:
        source = self.sources[row].tolist() if self.sources.size else []
        return zlib.crc32(repr((self.seed, source, prefix)).encode()) % 9973

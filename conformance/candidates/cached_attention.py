"""The subject for self-attention with a cache of keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..engine.cases import Case, Inputs, normal
from . import wire
from .answers import at, leaves
from .caching import CachingSubject
from .errors import CallFailed
from .feeds import Feed
from .session import Call
from .subject import Results, WrongResult, kind_of


class CachedAttentionSubject(CachingSubject):
    """Self-attention over ``x`` (B, T, d) with a cache of keys and values."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.masked = False

    def probe(self) -> None:
        case = Case({"B": 2, "T": 4, "h": 2, "d": 4, "max_len": 8, "seed": 3})
        x = normal(case.rng, (2, 4, 8))
        raw: Any = None
        problem = ""
        for double in dict.fromkeys((self.double, False)):
            self.double = double
            for masked in (False, True):
                self.masked = masked
                try:
                    raw = self.send(self.whole_calls(x, case))[-1]
                    spots = [path for path, _ in leaves(raw)]
                    fits = [
                        path for path in spots if self._fits(Feed("kept", "", pick=path), raw, x.shape, 8)
                    ]
                    self.pick = (fits or spots or [()])[0]
                    if not self._sees_future(x, case) or "mask" not in self.binding.arguments:
                        break
                except CallFailed as error:
                    problem = problem or str(error)
            else:
                continue
            break
        if raw is None:
            self.problem = f"no call succeeded; the first attempt: {problem}"
            return
        if not self.masked and self.conventions["polarity"][1] != "declared":
            del self.conventions["polarity"]
        self.probe_cache(x, case)

    def memory(self, case: Mapping[str, Any]) -> np.ndarray:
        """(4, S, d): what the rows of a batch read, the same for every piece; it follows from the seed."""
        return normal(np.random.default_rng([case["seed"], 9]), (4, case.get("S", 3), case["h"] * case["d"]))

    def _sees_future(self, x: np.ndarray, case: Case) -> bool:
        changed = x.copy()
        changed[:, -1] += 3.0
        before, after = (
            self.output_of(self.send(self.whole_calls(c, case))[-1], self.pick, x.shape) for c in (x, changed)
        )
        return before.shape == after.shape and bool(np.abs(before - after)[:, :-1].max() > 1e-4)

    def given(self, piece: np.ndarray, start: int, case: Mapping[str, Any]) -> dict[str, Any]:
        dtype = "float64" if self.double or self.framework != "torch" else "float32"
        x = self.array(piece.astype(dtype))
        given: dict[str, Any] = {"x": x, "key": x, "value": x}
        if "memory" in self.binding.arguments:
            given["memory"] = self.array(self.memory(case)[: len(piece)].astype(dtype))
        if self.masked:
            allowed = np.tri(start + piece.shape[1], dtype=bool)[start:]
            given["mask"] = self.array(allowed if self.convention("polarity") == "allow" else ~allowed)
        return given

    def output_of(self, raw: Any, pick: Sequence[str | int], shape: tuple[int, ...]) -> np.ndarray:
        item = at(raw, pick)
        if not isinstance(item, wire.Array):
            raise WrongResult(f"it returned {kind_of(raw)}; expected the output")
        return item.values

    def calls_for(self, inputs: Inputs) -> list[Call]:
        return self.whole_calls(inputs["x"], inputs.case)

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        return {"output": self.output_of(answers[-1], self.pick, inputs["x"].shape)}

    @property
    def limit(self) -> float:
        return 3e-6 if self.double else 2e-5

"""The subject for positional encodings: functions and modules that add, return a table, or take ids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine.cases import Case, Inputs, normal
from . import wire
from .errors import CallFailed
from .masks import as_array
from .session import Call
from .subject import Results, Subject, WrongResult, kind_of

_BATCH = r"(?:n_?batch|batch(?:_?size)?|bs|bsz|B|N)"
_LENGTH = r"(?:seq(?:uence)?(?:[_ ]?len(?:gth)?)?|T|L|S|len(?:gth)?|max_?len|time|n_?tokens)"
BATCH_FIRST = re.compile(rf"[\[(`]\s*{_BATCH}\s*,\s*{_LENGTH}\b")
SEQUENCE_FIRST = re.compile(rf"[\[(`]\s*{_LENGTH}\s*,\s*{_BATCH}\b")

SHORT, LONG = 8, 512  # lengths between which a table without a parameter for its size may end


def _is_sinusoidal(table: np.ndarray) -> bool:
    """Whether the squares of a sine and its cosine, side by side or in halves, add up to 1."""
    d = table.shape[1]
    pairs = (table[:, 0::2], table[:, 1::2]), (table[:, : d // 2], table[:, d // 2 :])
    return any(np.allclose(sines**2 + cosines**2, 1, atol=1e-3) for sines, cosines in pairs)


class PositionSubject(Subject):
    """Results: ``table`` (T, d) as the first batch row shows it, ``rows`` (B, T, d), ``output`` as returned."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.told_by_answers = self.convention("values") != "learned"
        self.form = "table"  # adds, table, ids, row
        self.axes = "btd"  # btd, tbd, td
        self.scale = "1"
        self.by_size = "x" not in self.binding.arguments

    def has(self, need: str) -> bool:
        if need == "argument x":
            return not self.by_size and self.form == "adds"
        if need == "constructor":
            return self.binding.entry["kind"] == "class"
        return super().has(need)

    def probe(self) -> None:
        case = Case({"T": 3, "d": 8, "B": 2, "max_len": 64, "seed": 3})
        if not self.binding.constructor.get("max_len"):
            self.irrelevant.add("max_len")
        problems: list[str] = []
        if self.by_size:
            self._probe_function(case, problems)
        elif not self._probe_adding(case, problems):
            self.problem = f"no call succeeded; the first attempt: {problems[0] if problems else 'no result'}"
            return
        what = {
            "adds": "adds to the embedding",
            "table": "returns a table",
            "ids": "takes ids",
            "row": "one position a call",
        }
        self.probed("form", what[self.form])
        if self.form == "adds":
            layout = {"btd": "(B, T, d)", "tbd": "(T, B, d)", "td": "(T, d)"}[self.axes]
            self.probed("layout", layout)
            self.probed("embedding_scale", self.scale)
            if self.axes == "td":
                self.limits["B"] = (1,)
        else:
            self.irrelevant.add("B")
        if self.has("constructor") and "max_len" in self.irrelevant:
            self._probe_length(case)
        if self.conventions["values"][1] != "declared" and self._is_learned(case):
            self.conventions["values"] = ("learned", "by its code: a trained table, and no sine or cosine")
            self.told_by_answers = False

    def trained(self, case: Case) -> PositionSubject:
        """The same with trained vectors that differ: they may begin as zeros."""
        other = type(self)(self.session, self.binding)
        other.__dict__.update({**self.__dict__, "remembered": {}, "variant": "trained"})
        built = other.built(case)
        found = [item for item in self.session.parameters(built) if item["trainable"] and not item["alias"]]
        drawn = {item["name"]: normal(case.rng, item["value"].values.shape, 1.0) for item in found}
        self.session.load(built, {name: self.array(v.astype(np.float32)) for name, v in drawn.items()})
        return other

    def _is_learned(self, case: Case) -> bool:
        """Whether a trained table is what is added, and neither the table nor the code knows a sine."""
        entry = self.binding.entry
        if entry["kind"] != "class" or entry["sines"]:
            return False
        try:
            table = self.run(Inputs(case, {}))["table"]
            found = self.session.parameters(self.built(case))
        except CallFailed:
            return False
        trained = [item["value"].values for item in found if item["trainable"]]
        rows = [values.reshape(-1, case["d"]) for values in trained if values.shape[-1:] == (case["d"],)]
        shown = any(all(np.abs(r - row).max(axis=1).min() < 1e-5 for row in table) for r in rows)
        return shown and not _is_sinusoidal(table)

    def _probe_length(self, case: Case) -> None:
        """A class with a size of its own, which no argument changes: longer sequences are outside of what it does."""

        def takes(T: int) -> bool:
            try:
                self.run(Inputs(Case({**case, "T": T}), {}))
            except WrongResult:
                return True  # whatever it is, it is not refused
            except CallFailed:
                return False
            return True

        if takes(LONG) or not takes(SHORT):
            return
        longest, refused = SHORT, LONG
        while refused - longest > 1:
            middle = (longest + refused) // 2
            longest, refused = (middle, refused) if takes(middle) else (longest, middle)
        self.limits["T"] = tuple(range(1, longest + 1))
        self.probed("longest", f"{longest} positions")

    def _probe_function(self, case: Case, problems: list[str]) -> None:
        """A number of positions, or the positions themselves; a table, or the vector of one position."""
        for form in ("table", "ids"):
            self.form = form
            try:
                array = as_array(self._raw(case, {"T": self._length(case["T"]), "d": case["d"]}))
            except CallFailed as error:
                problems.append(str(error))
                continue
            if array is not None and array[0].shape == (case["d"],):
                self.form = "row"
            return
        self.form = "table"

    def _length(self, T: int) -> Any:
        return self.array(np.arange(T, dtype=np.int64)) if self.form == "ids" else T

    def _probe_adding(self, case: Case, problems: list[str]) -> bool:
        for framework in dict.fromkeys([*self.binding.entry["frameworks"], self._default_framework()]):
            self.framework = framework
            for shape in ((2, 3, 8), (3, 3, 8)):
                if self._try_adding(case, shape, problems):
                    return True
        return self._probe_ids(case, problems) or self._try_adding(case, (3, 8), problems)

    def _try_adding(self, case: Case, shape: tuple[int, ...], problems: list[str]) -> bool:
        x = normal(case.rng, shape).astype(np.float32)
        try:
            still = self._values(self._raw(case, {"x": self.array(np.zeros_like(x)), "T": 3, "d": 8}))
            moved = self._values(self._raw(case, {"x": self.array(x), "T": 3, "d": 8}))
        except CallFailed as error:
            problems.append(str(error))
            return False
        self._understand(x, still, moved)
        return True

    def _understand(self, x: np.ndarray, still: np.ndarray, moved: np.ndarray) -> None:
        """From the answers to zeros and to ``x``: adds or returns a table, which axes, which scale."""
        self.form = "adds"
        if (
            still.shape == moved.shape
            and np.allclose(still, moved, atol=1e-6)
            and still.shape[-1] == x.shape[-1]
        ):
            self.form = "table"
            return
        if still.shape == x.shape == moved.shape:
            factor = moved - still
            for scale, value in (("1", 1.0), ("sqrt(d)", np.sqrt(x.shape[-1]))):
                if np.allclose(factor, x * value, atol=1e-4):
                    self.scale = scale
        if x.ndim == 2:
            self.axes = "td"
        elif x.shape[0] != x.shape[1] and still.shape == x.shape:
            along_batch = np.abs(still - still[:1]).max() > 1e-6
            along_sequence = np.abs(still - still[:, :1]).max() > 1e-6
            words = str(self.binding.entry.get("doc", ""))
            says_batch_first = bool(BATCH_FIRST.search(words)) and not SEQUENCE_FIRST.search(words)
            if along_batch and not along_sequence and not says_batch_first:
                self.axes = "tbd"

    def _probe_ids(self, case: Case, problems: list[str]) -> bool:
        for shape in ((2, 3), (3,)):
            ids = np.broadcast_to(np.arange(3), shape).astype(np.int64).copy()
            try:
                values = self._values(self._raw(case, {"x": self.array(ids), "T": 3, "d": 8}))
            except CallFailed as error:
                problems.append(str(error))
                continue
            if values.shape[-2:] == (3, 8):
                self.form, self.axes = "ids", "btd" if len(shape) == 2 else "td"
                return True
        return False

    # calling

    def calls_for(self, inputs: Inputs) -> list[Call]:
        case, T, d = inputs.case, inputs.case["T"], inputs.case["d"]
        if self.form == "row":
            return [self._call(case, {"T": pos, "d": d}) for pos in range(T)]
        given: dict[str, Any] = {"T": self._length(T) if self.by_size else T, "d": d}
        if not self.by_size:
            given["x"] = self.array(self._given(inputs))
        return [self._call(case, given)]

    def _given(self, inputs: Inputs) -> np.ndarray:
        """What stands for the embedding: ids, zeros where the table alone is wanted, or the embedding."""
        T, d, x = inputs.case["T"], inputs.case["d"], inputs.get("x")
        if self.form == "ids":
            ids = np.arange(T, dtype=np.int64)
            return ids if self.axes == "td" else np.repeat(ids[None], 2, axis=0)
        if self.form == "table":
            return np.zeros((2, T, d), dtype=np.float32)
        zeros = np.zeros((inputs.case["B"], T, d))
        return self._turn((zeros if x is None else x).astype(np.float32))

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        arrays = [self._values(answer) for answer in answers]
        values = arrays[0]
        dtype = values.dtype.name
        if self.form == "row":
            return {"table": self._interleaved(np.stack(arrays)), "dtype": dtype}
        if self.form == "ids" and not self.by_size:
            return {"table": self._interleaved(values.reshape((-1, *values.shape[-2:]))[0]), "dtype": dtype}
        if self.form != "adds":
            return {"table": self._interleaved(self._squeezed(values)), "dtype": dtype}
        rows = self._turn(values) if values.ndim == (2 if self.axes == "td" else 3) else values
        x = inputs.get("x")
        if x is None:
            x = np.zeros((inputs.case["B"], inputs.case["T"], inputs.case["d"]))
        scaled = x * (np.sqrt(x.shape[-1]) if self.scale == "sqrt(d)" else 1.0)
        result: Results = {"output": rows, "dtype": dtype, "scale": self.scale}
        if rows.shape == x.shape:
            result["rows"] = self._interleaved(rows - scaled)
            result["table"] = result["rows"][0]
        else:
            result["table"] = rows[0] if rows.ndim == 3 and len(rows) == 1 else rows
        return result

    def _squeezed(self, values: np.ndarray) -> np.ndarray:
        """A table without the axes that are there for broadcasting over a batch."""
        while values.ndim > 2 and values.shape[0] == 1:
            values = values[0]
        while values.ndim > 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim == 3 and not self.by_size and len(values) == 2 and np.allclose(values[0], values[1]):
            values = values[0]
        return values

    def default(self, inputs: Inputs) -> Inputs:
        """Without an embedding, so that the table alone is seen."""
        return Inputs(inputs.case, {name: value for name, value in inputs.items() if name != "x"})

    def _turn(self, values: np.ndarray) -> np.ndarray:
        """(B, T, d) as the candidate wants it, or back."""
        if self.axes == "tbd":
            return np.ascontiguousarray(values.swapaxes(0, 1))
        if self.axes == "td":
            return values[0] if values.ndim == 3 else values[None]
        return values

    def _interleaved(self, values: np.ndarray) -> np.ndarray:
        """Canonical order of coordinates: where halves are declared, sine and cosine are put in turn."""
        if self.convention("order") != "halves":
            return values
        half = (values.shape[-1] + 1) // 2
        order = [c // 2 if c % 2 == 0 else half + c // 2 for c in range(values.shape[-1])]
        return values[..., order]

    def _call(self, case: Case, given: dict[str, Any], **options: Any) -> Call:
        kept = {name: value for name, value in given.items() if name in self.binding.arguments}
        for name in ("T", "d"):  # a module that takes an embedding reads its sizes from it
            if not self.by_size and name in kept and self.binding.arguments[name].has_default:
                del kept[name]
        return self.make_call(case, kept, **options)

    def _raw(self, case: Case, given: dict[str, Any]) -> Any:
        return self.send([self._call(case, given)])[0]

    def _values(self, raw: Any) -> np.ndarray:
        if isinstance(raw, tuple | list) and raw and isinstance(raw[0], wire.Array):
            raw = raw[0]
        array = as_array(raw)
        if array is None:
            raise WrongResult(f"it returned {kind_of(raw)}; an encoding is an array")
        return array[0]

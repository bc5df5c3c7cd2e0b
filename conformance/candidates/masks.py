"""Subjects for masks: causal, prefix-LM and padding masks in every dtype, shape and polarity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from ..engine.cases import Case, Inputs, OutOfDomain
from . import wire
from .errors import CallFailed
from .session import Call
from .subject import Results, Subject, WrongResult, kind_of

BLOCKED_BELOW = -9e3  # the weakest sentinel in use is -1e4
ALLOWED_WITHIN = 100.0


def as_array(raw: Any) -> tuple[np.ndarray, str, str] | None:
    """An array, or nested lists of numbers: its values, dtype and container."""
    if isinstance(raw, wire.Array):
        return raw.values, raw.dtype, raw.container
    if isinstance(raw, list | tuple) and raw:
        try:
            values = np.array(raw)
        except ValueError:
            return None
        if values.dtype.kind in "bif" and values.ndim >= 1:
            return values, values.dtype.name, "list"
    return None


def _is_empty(raw: Any) -> bool:
    return isinstance(raw, list | tuple) and all(_is_empty(item) for item in raw)


def kind_of_mask(values: np.ndarray) -> str:
    """``boolean``, ``zero_one`` (a number 0 or 1) or ``additive`` (added to the scores)."""
    if values.dtype == bool:
        return "boolean"
    return "zero_one" if bool(np.isin(values, (0, 1)).all()) else "additive"


def read_mask(values: np.ndarray, kind: str, polarity: str) -> np.ndarray:
    """1 where the mask allows, 0 where it blocks, -1 where it does neither (NaN, or in between)."""
    if kind == "additive":
        with np.errstate(invalid="ignore"):
            numbers = values.astype(np.float64)
            allowed, blocked = np.abs(numbers) <= ALLOWED_WITHIN, numbers <= BLOCKED_BELOW
        return np.where(blocked, 0, np.where(allowed, 1, -1))
    if kind == "zero_one" and values.dtype != bool and not np.isin(values, (0, 1)).all():
        return np.where(np.isin(values, (0, 1)), (values == 1) == (polarity == "allow"), -1)
    truth = values.astype(bool)
    return (truth if polarity == "allow" else ~truth).astype(np.int64)


class MaskSubject(Subject):
    """A function that returns a mask.  ``allowed`` is 1, 0 or -1 (neither); ``raw`` is what came back."""

    told_by_answers = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.kind = ""
        self.dtype = ""
        self.container = self.framework
        self.sized = False  # what has the name of token ids is a length

    def probe(self) -> None:
        frameworks = dict.fromkeys([*self.binding.entry["frameworks"], self._default_framework(), "numpy"])
        names = self.binding.arguments.keys() & {"T", "tokens"}
        ways = (False, True) if names == {"tokens"} else (False,)
        for sized, values, framework in product(ways, self.probe_inputs(), frameworks):
            self.framework, self.sized = framework, sized
            try:
                raw = self.raw(values)
            except CallFailed:
                continue
            self.kind = kind_of_mask(raw["raw"])
            self.dtype, self.container = raw["dtype"], raw["container"]
            self.probed(
                "form",
                {"boolean": "boolean", "zero_one": "0 and 1", "additive": "additive"}[self.kind]
                + f", {self.dtype}",
            )
            shape = raw["given_shape"]
            self.probed("shape", str(shape).replace("'", ""))
            if self.kind == "additive" and "polarity" in self.conventions:
                self.conventions["polarity"] = ("additive", "probed")
            else:
                self._suit_attention(values)
            return
        self.framework, self.sized = next(iter(frameworks)), False

    def _suit_attention(self, inputs: Inputs) -> None:
        """Where only a name tells what True means, the attention beside it may mean the contrary, and be suited."""
        means = self.binding.entry.get("attention_means", ())
        value, how = self.conventions.get("polarity", ("", ""))
        if (
            how not in ("by name", "default")
            or len(means) != 1
            or means[0] not in {"allow", "block"} - {value}
        ):
            return
        other = self.with_convention("polarity", means[0])
        with suppress(CallFailed, OutOfDomain):
            wrong, right = self.run(inputs)["allowed"], other.run(inputs)["allowed"]
            expected = self.expected(inputs)
            if right.shape == expected.shape and (right == expected).all() and (wrong != expected).any():
                self.conventions["polarity"] = (means[0], "by the mask of its attention")

    def expected(self, inputs: Inputs) -> np.ndarray:
        """What a right mask allows, 1 or 0."""
        return np.tri(inputs["T"], dtype=np.int64)

    def probe_inputs(self) -> list[Inputs]:
        cases = [Case({"T": 5, "k": 2, "seed": 0}), Case({"T": 3, "k": 1, "seed": 0})]
        return [Inputs(case, {"T": case["T"], "k": case["k"]}) for case in cases]

    def gist(self, inputs: Inputs, results: Results) -> Mapping[str, Any]:
        """Of a mask that is larger than was asked for, the part that was asked for."""
        found, T = dict(super().gist(inputs, results)), inputs.get("T")
        if isinstance(T, int) and np.ndim(found.get("allowed", 0)) >= 2:
            found["allowed"] = found["allowed"][..., :T, :T]
        return found

    def has(self, need: str) -> bool:
        return self.container == "torch" if need == "torch" else super().has(need)

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        raw = self._given(answers[0])
        values = self.squeeze(raw["raw"], inputs)
        kind = self.kind or kind_of_mask(values)
        if kind == "zero_one" and not np.isin(values, (0, 1)).all():
            kind = "additive"
        allowed = read_mask(values, kind, self.convention("polarity"))
        return {**raw, "given": raw["raw"], "raw": values, "allowed": allowed, "kind": kind}

    def raw(self, inputs: Inputs) -> Results:
        """What came back for one call, unread."""
        return self._given(self.send(self.calls_for(inputs))[0])

    def calls_for(self, inputs: Inputs) -> list[Call]:
        given = {n: self.plain_argument(inputs[n]) for n in self.binding.arguments if n in inputs}
        if "tokens" in self.binding.arguments and "T" not in self.binding.arguments:
            ids = np.full((1, max(0, inputs["T"])), self._some_token(), dtype=np.int64)
            given["tokens"] = inputs["T"] if self.sized else self.array(ids)
        for name in [n for n in given if self._optional_constant(n)]:
            del given[name]
        return [self.make_call(inputs.case, given)]

    def _some_token(self) -> int:
        """An id that is no padding: none of the numbers that are its defaults, or constants that it reads."""
        taken = {p["default"] for p in self.binding.parameters} | {
            *self.binding.entry.get("constants", {}).values()
        }
        return next(n for n in range(1, 99, 2) if n not in taken)

    @staticmethod
    def _given(answer: Any) -> Results:
        array = as_array(answer)
        if array is None and _is_empty(answer):  # plain Python has but one list for no rows
            array = np.zeros((0, 0), dtype=bool), "bool", "list"
        if array is None:
            raise WrongResult(f"it returned {kind_of(answer)}; a mask is an array of booleans or numbers")
        values, dtype, container = array
        return {"raw": values, "dtype": dtype, "container": container, "given_shape": values.shape}

    def _optional_constant(self, name: str) -> bool:
        argument = next(a for a in self.role.arguments if a.name == name)
        return argument.only_if_required and self.binding.arguments[name].has_default

    def squeeze(self, values: np.ndarray, inputs: Inputs) -> np.ndarray:
        """Without the axes of length 1 that are there for broadcasting."""
        while values.ndim > 2 and values.shape[0] == 1:
            values = values[0]
        while values.ndim > 2 and values.shape[-1] == 1:
            values = values[..., 0]
        return values


class PaddingMaskSubject(MaskSubject):
    """A mask over a batch of padded sequences, from lengths or from token ids."""

    told_by_answers = True

    def probe(self) -> None:
        if "pad_id" not in self.binding.arguments and "lengths" not in self.binding.arguments:
            self.limits["pad_id"] = (0,)  # no padding id is passed, so it is the usual one
        place = self.binding.arguments.get("pad_id")
        if place is not None and place.has_default and "ids" not in self.binding.arguments:
            left = {n: p for n, p in self.binding.arguments.items() if n != "pad_id"}
            self.binding = replace(
                self.binding, arguments=left
            )  # lengths know no id: it means something else
        if "S" not in self.binding.arguments and "ids" not in self.binding.arguments:
            self.limits["full"] = (True,)  # without a length for all, the longest sequence gives it
        super().probe()

    def probe_inputs(self) -> list[Inputs]:
        case = Case({"B": 2, "S": 4, "pad_id": 0, "place": "end", "seed": 0})
        values = {
            "lengths": np.array([2, 4]),
            "ids": np.array([[7, 3, 0, 0], [7, 3, 5, 2]]),
            "S": 4,
            "pad_id": 0,
        }
        return [Inputs(case, values)]

    def expected(self, inputs: Inputs) -> np.ndarray:
        return (inputs["ids"] != inputs["pad_id"]).astype(np.int64)

    def squeeze(self, values: np.ndarray, inputs: Inputs) -> np.ndarray:
        axes = tuple(axis for axis in range(1, values.ndim - 1) if values.shape[axis] == 1)
        values = values.squeeze(axes) if axes else values
        while values.ndim > 2 and values.shape[-1] == 1:
            values = values[..., 0]
        if values.ndim == 3 and values.shape[1] == values.shape[2] and (values == values[:, :1]).all():
            values = values[:, 0]  # (B, S, S) with equal rows: for self-attention over the same sequence
        return values

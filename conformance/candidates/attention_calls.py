"""How attention is called: the layout of its inputs, the kinds and shapes of its mask, where its results stand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..engine.cases import Inputs, OutOfDomain
from . import wire
from .answers import at
from .errors import CallFailed
from .masks import MaskSubject
from .names import plain
from .session import Built, Call
from .settings import GLOBAL
from .subject import Results, Subject, WrongResult, kind_of

# How a mask of canonical shape (B, h, T, S) is given: its name, and the axes that are kept.
FORMS: dict[str, dict[str, tuple[int, ...]]] = {
    "2d": {"(T, S)": (2, 3)},
    "3d": {
        "(T, S)": (2, 3),
        "(B, T, S)": (0, 2, 3),
        "(B, 1, S)": (0, -1, 3),
        "(1, T, S)": (-1, 2, 3),
        "(B, S)": (0, 3),
    },
    "4d": {
        "(T, S)": (2, 3),
        "(B, 1, T, S)": (0, -1, 2, 3),
        "(1, 1, T, S)": (-1, -1, 2, 3),
        "(B, 1, 1, S)": (0, -1, -1, 3),
        "(B, T, S)": (0, 2, 3),
        "(1, T, S)": (-1, 2, 3),
        "(B, 1, S)": (0, -1, 3),
        "(B, S)": (0, 3),
    },
}
WIDTH = re.compile(r"d(im)?_?(k|qk|key|head)|(head|key|qk)_?dim|head_?size", re.IGNORECASE)
LAYOUTS = {"3d": "(B, T, d)", "4d": "(B, h, T, d)", "2d": "(T, d)"}


class AttentionCalls(Subject):
    """Canonical arrays are (N, T, d); a candidate takes them as (T, d), (B, T, d) or (B, h, T, d)."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.layouts: list[str] = []
        self.kinds: list[str] = ["boolean"]
        self.forms: dict[str, list[str]] = {}
        self.pick: dict[str, tuple[str | int, ...]] = {}
        self.taken: tuple[str, ...] = ()
        self.turned = self.transposed = False  # whether weights come with keys as rows
        self.full_mask: tuple[str, str] | None = None  # how "no mask" is said where a mask is required
        self.sentinel = -np.inf

    @property
    def takes_mask(self) -> bool:
        return "mask" in self.binding.arguments

    def built(self, case: Mapping[str, Any], double: bool = False) -> Built:
        """Where a class takes the width from a constant, a configuration or a default, these are set for each case."""
        made = super().built(case, double)
        init = self.binding.entry.get("init") or () if self.binding.entry["kind"] == "class" else ()
        spelled = {
            p["name"]: p.get("spelled", p["name"])
            for p in init
            if p["name"].startswith(GLOBAL) or "." in p["name"] or type(p["default"]) is int
            if p["kind"] != "POSITIONAL_ONLY" and p["has_default"]
        }
        names = [name for name, word in spelled.items() if WIDTH.fullmatch(word)]
        names = names or [name for name, word in spelled.items() if plain(word) == "dmodel"]
        widths = dict.fromkeys(names, int(case["d"])) if names else {}
        return replace(made, kwargs={**widths, **made.kwargs})

    @property
    def constant_width(self) -> int:
        """The width for which a function is written that reads it from a constant, which nobody can set; 0 for none."""
        constants = self.binding.entry.get("constants", {})
        found = [value for name, value in constants.items() if WIDTH.fullmatch(name) and type(value) is int]
        return max(found, default=0)

    def has(self, need: str) -> bool:
        if need == "batches":
            return any(layout != "2d" for layout in self.layouts)
        return super().has(need)

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        return self._decode(answers, inputs, self._layout(inputs))

    def calls_for(self, inputs: Inputs) -> list[Call]:
        layout = self._layout(inputs)
        masked = inputs.get("mask") is not None and self.takes_mask
        encoded = self._choose_mask(inputs, layout) if masked else self._no_mask(inputs, layout)
        options = {"is_causal": True} if inputs.get("is_causal") else {}
        return self._calls(inputs, encoded, layout, options)

    def _no_mask(self, inputs: Inputs, layout: str) -> wire.Array | None:
        if self.full_mask is None:
            return None
        kind, form = self.full_mask
        N, T = inputs["query"].shape[:2]
        everything = np.ones((N, T, inputs["key"].shape[1]), dtype=bool)
        return self._encode_mask(
            everything, inputs, kind, layout, form if form in FORMS[layout] else "(T, S)"
        )

    def call_with_mask(self, inputs: Inputs, own: Results, partner: MaskSubject) -> np.ndarray:
        """The output with the mask of another object, as it came: negated only where the polarities differ.

        A kind of mask that this attention does not take is translated into one that it takes.
        """
        layout = self._layout(inputs)
        kind = {"boolean": "boolean", "zero_one": "0 and 1", "additive": "additive"}[own["kind"]]
        raws = [own["given"], own["raw"]]
        names = {2: "(T, S)", 3: "(1, T, S)", 4: "(1, 1, T, S)"}
        if partner.role.id == "padding_mask":  # (B, S), with axes for the queries and the heads
            rows = np.repeat(own["raw"], inputs.case["h"], axis=0) if layout == "3d" else own["raw"]
            raws = [rows[:, None, :] if layout == "3d" else rows[:, None, None, :]]
            names = {3: "(B, 1, S)", 4: "(B, 1, 1, S)"}
        for raw in raws if kind in self.taken else ():
            form = names.get(raw.ndim)
            if form not in self.forms[layout]:
                continue
            if kind != "additive" and partner.convention("polarity") != self.convention("polarity"):
                raw = ~raw if raw.dtype == bool else (1 - raw).astype(raw.dtype)
            mask = self.array(raw.astype(inputs["query"].dtype) if kind == "additive" else raw)
            try:
                output = self._decode(self.send(self._calls(inputs, mask, layout)), inputs, layout)["output"]
            except CallFailed:
                continue
            if output.shape == (*inputs["query"].shape[:2], inputs["value"].shape[2]):
                return output
        return self.run(inputs)["output"]

    def gradient(self, inputs: Inputs, cotangent: np.ndarray) -> dict[str, np.ndarray] | None:
        """Gradients of the output with respect to query, key and value; None if nothing connects them."""
        layout = self._layout(inputs)
        names = ("query", "key", "value")
        parts: list[list[np.ndarray]] = []
        calls = self.calls_for(inputs)
        pieces = (
            cotangent
            if layout == "2d"
            else [cotangent.reshape(self._lead(inputs.case, layout) + cotangent.shape[1:])]
        )
        for call, piece in zip(calls, pieces, strict=True):
            wrt = [self._wrt(name) for name in names]
            gradients = self.session.vjp(
                call, wrt, self.pick["output"], self.array(np.ascontiguousarray(piece))
            )
            if gradients is None:
                return None
            parts.append([g.values for g in gradients])
        if layout == "2d":
            return {name: np.stack([part[n] for part in parts]) for n, name in enumerate(names)}
        return {name: parts[0][n].reshape((-1, *parts[0][n].shape[-2:])) for n, name in enumerate(names)}

    def _wrt(self, name: str) -> str | int:
        place = self.binding.arguments[name]
        if place.position is None:
            return place.name
        before = [
            p
            for p in self.binding.arguments.values()
            if p.position is not None and p.position < place.position
        ]
        return len(before)

    def _layout(self, inputs: Inputs) -> str:
        layout = inputs.case.get("layout", self.layouts[0])
        return layout if layout in self.layouts else self.layouts[0]

    @staticmethod
    def _lead(case: Mapping[str, Any], layout: str) -> tuple[int, ...]:
        B, h = case.get("B", 1), case.get("h", 1)
        return {"2d": (), "3d": (B * h,), "4d": (B, h)}[layout]

    def _calls(
        self, inputs: Inputs, mask: wire.Array | None, layout: str, options: Mapping[str, Any] | None = None
    ) -> list[Call]:
        """One call, or for unbatched candidates one per instance."""
        case = {"d": inputs["query"].shape[-1], **inputs.case}
        if case["d"] not in self.limits.get("d", (case["d"],)):
            raise OutOfDomain(f"it takes its width from a constant, {self.constant_width}")
        dtype = inputs.case.get("dtype")
        dtype = dtype if dtype in ("bfloat16", "float16") else None
        arrays = {name: inputs[name] for name in ("query", "key", "value")}
        if layout == "2d":
            batches = [
                {name: array[n] for name, array in arrays.items()} for n in range(len(arrays["query"]))
            ]
        else:
            batches = [
                {
                    name: a.reshape(self._lead(_counted(case, a), layout) + a.shape[1:])
                    for name, a in arrays.items()
                }
            ]
        calls = []
        for n, batch in enumerate(batches):
            given: dict[str, Any] = {name: self.array(array, dtype) for name, array in batch.items()}
            if mask is not None:
                given["mask"] = self._instance(mask, n) if layout == "2d" and mask.values.ndim == 3 else mask
            given.update(options or {})
            width = self.binding.arguments.get("d_k")
            if (
                width is not None and width.fixed and WIDTH.fullmatch(width.name)
            ):  # the default fits one width
                given["d_k"] = int(case["d"])
            calls.append(self.make_call(case, given))
        return calls

    @staticmethod
    def _instance(mask: wire.Array, n: int) -> wire.Array:
        return wire.Array(mask.values[n], mask.dtype, mask.container)

    def _choose_mask(self, inputs: Inputs, layout: str) -> wire.Array:
        """The mask in one of the kinds and shapes that the candidate takes, varying with the case."""
        turn = int(inputs.case.get("seed", 0))
        kind = inputs.case.get("mask_kind") or self.kinds[turn % len(self.kinds)]
        forms = [form for form in self.forms.get(layout, ()) if self._represents(inputs, layout, form)]
        if not forms:
            raise OutOfDomain("no shape of mask that the candidate takes can say this")
        return self._encode_mask(
            inputs["mask"], inputs, kind, layout, forms[(turn // len(self.kinds)) % len(forms)]
        )

    def _represents(self, inputs: Inputs, layout: str, form: str) -> bool:
        """Whether a shape can hold the mask: axes that it lacks must not matter."""
        if layout == "2d":
            return True
        full = self._full(inputs["mask"], inputs, layout)
        kept = FORMS[layout][form]
        return all((full == full.take([0], axis=axis)).all() for axis in range(4) if axis not in kept)

    def _full(self, mask: np.ndarray, inputs: Inputs, layout: str) -> np.ndarray:
        """(B, h, T, S); for (B, T, d) the batch is the product of both."""
        case = _counted(inputs.case, mask)
        lead = (case["B"], case["h"]) if layout == "4d" else (len(mask), 1)
        return mask.reshape(lead + mask.shape[1:])

    def _encode_mask(self, mask: np.ndarray, inputs: Inputs, kind: str, layout: str, form: str) -> wire.Array:
        if layout == "2d":
            values = mask
        else:
            values = self._full(mask, inputs, layout)
            kept = FORMS[layout][form]
            for axis in range(4):
                if axis not in kept:
                    values = values.take([0], axis=axis)
            shape = [values.shape[axis] if axis >= 0 else 1 for axis in kept]
            values = values.reshape(shape)
        marked = values if self.convention("polarity") != "block" else ~values
        dtype = inputs.case.get("dtype") or inputs["query"].dtype.name
        if kind == "additive":
            plain = np.where(values, 0.0, self.sentinel).astype("float32" if dtype == "bfloat16" else dtype)
            return self.array(plain, dtype if dtype in ("bfloat16", "float16") else None)
        if kind == "boolean":
            return self.array(np.ascontiguousarray(marked))
        if kind == "0 and 1":
            plain = marked.astype("float32" if dtype == "bfloat16" else dtype)
            return self.array(plain, dtype if dtype in ("bfloat16", "float16") else None)
        return self.array(marked.astype("int64"))

    def _decode(self, raw: Sequence[Any], inputs: Inputs, layout: str) -> Results:
        results: Results = {}
        for name, path in self.pick.items():
            items = []
            for answer in raw:
                item = at(answer, path)
                if not isinstance(item, wire.Array):
                    raise WrongResult(f"it returned {kind_of(answer)}; its {name} was an array before")
                items.append(item.values)
            if layout == "2d":
                if len({item.shape for item in items}) != 1:
                    raise WrongResult(f"its {name} has another shape for another instance")
                results[name] = np.stack(items)
            else:
                values, lead = items[0], len(self._lead(inputs.case, layout))
                expected = self._lead(_counted(inputs.case, inputs["query"]), layout)
                results[name] = (
                    values.reshape((-1, *values.shape[lead:])) if values.shape[:lead] == expected else values
                )
            if name == "weights" and self.turned and results[name].ndim == 3:
                results[name] = results[name].swapaxes(1, 2)
        return results


def _counted(case: Mapping[str, Any], array: np.ndarray) -> dict[str, Any]:
    """The case with B and h as the array has them (a property may have taken rows out of the batch)."""
    B, h = case.get("B", 1), case.get("h", 1)
    if len(array) != B * h:
        h = h if len(array) % h == 0 else 1
        B = len(array) // h
    return {**case, "B": B, "h": h}

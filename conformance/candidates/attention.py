"""The subject for attention over given queries, keys and values, with or without a mask argument."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..engine.cases import Case, Inputs, OutOfDomain, normal
from ..engine.tolerance import rounding, score_scale
from . import wire
from .errors import CallFailed
from .masks import MaskSubject
from .session import Call
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
KINDS = ("boolean", "additive", "0 and 1")
LAYOUTS = {"3d": "(B, T, d)", "4d": "(B, h, T, d)", "2d": "(T, d)"}


class AttentionSubject(Subject):
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

    def has(self, need: str) -> bool:
        if need == "batches":
            return any(layout != "2d" for layout in self.layouts)
        return super().has(need)

    # probing

    def probe(self) -> None:
        problems: list[str] = []
        frameworks = dict.fromkeys(
            [*self.binding.entry["frameworks"], self._default_framework(), "numpy", "list"]
        )
        for framework in frameworks:
            self.framework = framework
            accepted = [layout for layout in FORMS if self._accepts(layout, problems)]
            if accepted:
                break
        else:
            self.problem = f"no call succeeded; the first attempt: {problems[0] if problems else 'no result'}"
            return
        right = [layout for layout in accepted if self._is_right(layout)]
        # A layout that is accepted with another result, while one is right, was not meant to be supported,
        # unless it is the plain batch: a softmax over the wrong axis is right for a single sequence.
        self.layouts = [x for x in accepted if x in right or not right or (x == "3d" and right == ["2d"])]
        self.limits["layout"] = tuple(x for x in ("3d", "4d", "2d") if x in self.layouts)
        self.probed("layout", ", ".join(LAYOUTS[x] for x in self.limits["layout"]))
        self.probed("result", self._describe_result())
        if self.turned:
            self.probed("weights", "(S, T), keys as rows")
        if self.takes_mask:
            self._probe_masks()
        elif self.role.id == "attention":
            self.limits["mask"] = ("none",)
            for name in ("polarity", "fully_blocked"):
                self.conventions.pop(name, None)
        self.limits["dtype"] = self._dtypes()
        if self.takes_mask and "fully_blocked" in self.conventions:
            self._probe_fully_blocked()

    def _probe_inputs(self, layout: str, T: int = 4, S: int = 5) -> Inputs:
        """Sizes that differ from each other, so that no axis is taken for another: B = 2, h = 3, d = 6, d_v = 7."""
        S = T if self.role.id == "causal_attention" else S
        case = Case({"layout": layout, "B": 2 if layout != "2d" else 1, "h": 3 if layout == "4d" else 1})
        case = case.replaced(T=T, S=S, d=6, dv=7, mask="none", seed=11)
        rng, n = case.rng, case["B"] * case["h"]
        values: dict[str, Any] = {
            name: normal(rng, (n, T if name == "query" else S, 6)) for name in ("query", "key")
        }
        values["value"] = normal(rng, (n, S, 7))
        return Inputs(case, {**{k: v.astype(np.float32) for k, v in values.items()}, "mask": None})

    def _accepts(self, layout: str, problems: list[str]) -> bool:
        """Whether a call in this layout returns an output; a mask that is required is one that hides nothing."""
        known = self.full_mask
        forced = self.takes_mask and not self.binding.arguments["mask"].has_default
        for square in (False, True):
            inputs = self._probe_inputs(layout, 4, 4 if square else 5)
            for needed in (None, "boolean", "additive") if forced else (None,):
                for form in FORMS[layout] if needed else ("",):
                    self.full_mask = (needed, form) if needed else None
                    try:
                        raw = self.send(self._calls(inputs, self._no_mask(inputs, layout), layout))[0]
                    except (CallFailed, OutOfDomain) as error:
                        problems.append(str(error))
                        continue
                    pick = self._locate(raw, inputs, layout)
                    if "output" in pick:
                        if len(pick) >= len(self.pick):
                            self.pick, self.turned = pick, self.transposed
                        return True
                    problems.append(
                        f"it returned {kind_of(raw)} for queries of shape {self._shape(inputs, layout)}"
                    )
        self.full_mask = known
        return False

    def _no_mask(self, inputs: Inputs, layout: str) -> wire.Array | None:
        if self.full_mask is None:
            return None
        kind, form = self.full_mask
        N, T = inputs["query"].shape[:2]
        everything = np.ones((N, T, inputs["key"].shape[1]), dtype=bool)
        return self._encode_mask(
            everything, inputs, kind, layout, form if form in FORMS[layout] else "(T, S)"
        )

    def _shape(self, inputs: Inputs, layout: str) -> tuple[int, ...]:
        return self._lead(inputs.case, layout) + inputs["query"].shape[1:]

    def _locate(self, raw: Any, inputs: Inputs, layout: str) -> dict[str, tuple[str | int, ...]]:
        """Where output and weights are in what came back, told apart by shape (and by their sums)."""
        lead, T, S = self._lead(inputs.case, layout), inputs.case["T"], inputs.case["S"]
        shapes = {"output": (*lead, T, inputs["value"].shape[2]), "weights": (*lead, T, S)}
        found: dict[str, tuple[str | int, ...]] = {}
        self.transposed = False
        for path, item in leaves(raw):
            if item.values.shape == (*lead, S, T) and S != T and "weights" not in found:
                found["weights"], self.transposed = path, True  # told by shape: queries stand in the columns
            for name, shape in shapes.items():
                if item.values.shape != shape or item.values.dtype.kind != "f":
                    continue
                better = name == "weights" and name in found and not _is_stochastic(at(raw, found[name]))
                if name not in found or better:
                    found[name] = path
                    self.transposed = self.transposed and name != "weights"
        return found

    def _describe_result(self) -> str:
        if self.pick.get("output") == ():
            return "output"
        order = sorted(self.pick, key=lambda name: str(self.pick[name]))
        return f"({', '.join(order)})"

    def _is_right(self, layout: str) -> bool:
        for square in (False, True):
            inputs = self._probe_inputs(layout, 4, 4 if square else 5)
            try:
                answers = self.send(self._calls(inputs, self._no_mask(inputs, layout), layout))
                output = self._decode(answers, inputs, layout)["output"]
            except CallFailed:
                continue
            visible = np.tri(4, dtype=bool)[None] if self.role.id == "causal_attention" else None
            expected = _attend(inputs["query"], inputs["key"], inputs["value"], visible)
            return output.shape == expected.shape and bool(
                np.allclose(output, expected, rtol=1e-3, atol=1e-3)
            )
        return False

    def _probe_masks(self) -> None:
        """Which kinds and shapes of mask are taken.

        A kind counts if it acts as a mask in some shape.  A shape counts if the call succeeds: sizes are
        all different, so what is taken without an error and hides the wrong things is a fault, and the
        claims shall see it.
        """
        kinds = ("additive",) if self.conventions.get("polarity") == ("additive", "declared") else KINDS
        places = [(layout, form) for layout in self.layouts for form in FORMS[layout]]
        acting = [kind for kind in kinds if any(self._try_mask(kind, *place) == "masks" for place in places)]
        self.taken = tuple(acting)
        if "boolean" not in acting and kinds == KINDS and (not acting or self._says_boolean()):
            acting.insert(0, "boolean")
        self.kinds = acting or ["additive"]
        self.forms = {layout: [] for layout in self.layouts}
        for layout, form in places:
            if all(self._survives(kind, layout, form) for kind in self.kinds):
                self.forms[layout].append(form)
        if any(self.forms.values()):  # a layout in which no mask can be given is left alone
            self.layouts = [layout for layout in self.layouts if self.forms[layout]]
            self.limits["layout"] = tuple(
                layout for layout in self.limits["layout"] if layout in self.layouts
            )
            self.probed("layout", ", ".join(LAYOUTS[x] for x in self.limits["layout"]))
        if self.kinds == ["additive"]:
            self.conventions["polarity"] = (
                "additive",
                self.conventions["polarity"][1].replace("by name", "probed"),
            )
        self.probed("mask_kind", ", ".join(self.kinds))
        self.probed("mask_shape", "; ".join(dict.fromkeys(f for forms in self.forms.values() for f in forms)))

    def _survives(self, kind: str, layout: str, form: str) -> bool:
        """Whether a call with such a mask returns an output at all."""
        for square in (False, True):
            inputs = self._probe_inputs(layout, 4, 4 if square else 5)
            try:
                output = self._masked(inputs, self._probe_pattern(inputs, form), kind, layout, form)
            except (CallFailed, OutOfDomain):
                continue
            return output.shape == (*inputs["query"].shape[:2], inputs["value"].shape[2])
        return False

    def _says_boolean(self) -> bool:
        """Whether the author's own words call the mask boolean, and not additive."""
        words = str(self.binding.entry.get("doc", "")).lower()
        return "bool" in words and not any(word in words for word in ("add", "-inf", "float"))

    def _try_mask(self, kind: str, layout: str, form: str) -> str:
        """``masks``: hides the values it blocks and nothing else; ``runs``: does something else; ``fails``."""
        found = "fails"
        for square in (False, True):
            inputs = self._probe_inputs(layout, 4, 4 if square else 5)
            mask = self._probe_pattern(inputs, form)
            try:
                before = self._masked(inputs, mask, kind, layout, form)
                if before.shape != (*inputs["query"].shape[:2], inputs["value"].shape[2]):
                    continue
                found = "runs"
                visible = np.asarray(mask.any(axis=1))
                moved = np.where(visible[..., None], 0.0, 9.0).astype(np.float32)
                hidden = self._masked(
                    inputs.replaced(value=inputs["value"] + moved), mask, kind, layout, form
                )
                shown = self._masked(
                    inputs.replaced(value=inputs["value"] + (9.0 - moved)), mask, kind, layout, form
                )
                if not np.isfinite(before).all() or np.abs(hidden - before).max() > 1e-3:
                    return "runs"
                if np.abs(shown - before).max(axis=(1, 2)).min() < 1.0:
                    return "runs"
                adds = kind != "additive" or self._adds(inputs, mask, layout, form, before)
                return "masks" if adds else "runs"
            except (CallFailed, OutOfDomain):
                continue
        return found

    def _probe_pattern(self, inputs: Inputs, form: str) -> np.ndarray:
        """The last key blocked for everyone (and, per row of a batch, one more key for some)."""
        N, T = inputs["query"].shape[:2]
        S = inputs["key"].shape[1]
        mask = np.ones((N, T, S), dtype=bool)
        mask[:, :, -1] = False
        if "B" in form and inputs.case["B"] > 1:
            mask[: inputs.case["h"], :, -2] = False
        return mask

    def _adds(self, inputs: Inputs, mask: np.ndarray, layout: str, form: str, before: np.ndarray) -> bool:
        """An additive mask adds: a small negative number there must not block entirely."""
        old, self.sentinel = self.sentinel, -0.7
        try:
            softly = self._masked(inputs, mask, "additive", layout, form)
        except (CallFailed, OutOfDomain):
            return False
        finally:
            self.sentinel = old
        return bool(np.isfinite(softly).all() and np.abs(softly - before).max() > 1e-3)

    def _masked(self, inputs: Inputs, mask: np.ndarray, kind: str, layout: str, form: str) -> np.ndarray:
        encoded = self._encode_mask(mask, inputs, kind, layout, form)
        results = self.send(self._calls(inputs.replaced(mask=mask), encoded, layout))
        return self._decode(results, inputs, layout)["output"]

    def _dtypes(self) -> tuple[str, ...]:
        """float64 and float32 as far as the candidate takes them."""
        accepted = []
        for dtype in ("float64", "float32"):
            inputs = self._probe_inputs(self.layouts[0], 4, 4)
            values = {k: v.astype(dtype) if v is not None else None for k, v in inputs.items()}
            try:
                output = self.run(Inputs(inputs.case.replaced(dtype=dtype), values))["output"]
            except (CallFailed, OutOfDomain):
                continue
            accepted.append(dtype)
            if dtype == "float64":
                self._probe_precision(inputs, output)
        return tuple(accepted) or ("float64", "float32")

    def _probe_precision(self, inputs: Inputs, output: np.ndarray) -> None:
        """float64 inputs may rightly be computed in float32, as libraries do in their softmax."""
        visible = np.tri(4, dtype=bool)[None] if self.role.id == "causal_attention" else None
        expected = _attend(inputs["query"], inputs["key"], inputs["value"], visible)
        error = np.abs(output - expected).max() if output.shape == expected.shape else np.inf
        size, scores = float(np.abs(inputs["value"]).max()), score_scale(inputs)
        if rounding("float64", scores, size) < error <= rounding("float32", scores, size):
            self.precision = "float32"
            self.probed("precision", "float32 inside")

    def _probe_fully_blocked(self) -> None:
        inputs = self._probe_inputs(self.layouts[0], 4, 4)
        mask = np.ones((len(inputs["query"]), 4, 4), dtype=bool)
        mask[:, 1] = False
        try:
            row = self.run(inputs.replaced(mask=mask))["output"][:, 1]
        except CallFailed:
            self.probed("fully_blocked", "error")
            return
        except OutOfDomain:
            return
        mean = inputs["value"].mean(axis=1)
        policy = "nan" if np.isnan(row).any() else "other"
        if np.allclose(row, 0, atol=1e-6):
            policy = "zeros"
        elif np.allclose(row, mean, atol=1e-4):
            policy = "uniform"
        self.probed("fully_blocked", policy)

    # calling

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        return self._decode(answers, inputs, self._layout(inputs))

    def calls_for(self, inputs: Inputs) -> list[Call]:
        layout = self._layout(inputs)
        masked = inputs.get("mask") is not None and self.takes_mask
        encoded = self._choose_mask(inputs, layout) if masked else self._no_mask(inputs, layout)
        options = {"is_causal": True} if inputs.get("is_causal") else {}
        return self._calls(inputs, encoded, layout, options)

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


def leaves(
    value: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], wire.Array]]:
    """Every array in what came back, with the path to it; nested lists of numbers are arrays too."""
    value = _listed(value)
    if isinstance(value, wire.Array):
        yield path, value
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, (*path, name))


def at(value: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return _listed(value)


def _listed(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], list):
        try:
            numbers = np.array(value)
        except ValueError:
            return value
        if numbers.dtype.kind in "fib":
            return wire.Array(numbers, numbers.dtype.name, "list")
    return value


def _is_stochastic(value: Any) -> bool:
    return isinstance(value, wire.Array) and bool(np.allclose(value.values.sum(-1), 1, atol=1e-4))


def _attend(query: np.ndarray, key: np.ndarray, value: np.ndarray, allowed: np.ndarray | None) -> np.ndarray:
    """What probing compares with: attention in float64, (N, T, d)."""
    scores = query.astype(np.float64) @ key.astype(np.float64).swapaxes(1, 2) / np.sqrt(query.shape[-1])
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value.astype(np.float64)

"""The subject for attention over given queries, keys and values: what of its conventions can be seen."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from ..engine.cases import Case, Inputs, OutOfDomain, normal
from ..engine.tolerance import rounding, score_scale
from . import wire
from .answers import at, leaves
from .attention_calls import FORMS, LAYOUTS, AttentionCalls
from .errors import CallFailed
from .subject import Results, kind_of

KINDS = ("boolean", "additive", "0 and 1")

# What the author calls an array with an axis for heads: "(B, h, T, d)".
WITH_HEADS = re.compile(
    r"[(\[] *(B|N|bsz|batch\w*) *, *(h|heads?|n_?heads?|num_?heads|nhead) *, *\w+ *, *\w+ *[)\]]",
    re.IGNORECASE,
)


class AttentionSubject(AttentionCalls):
    """Finds by trial which layouts, masks and dtypes the candidate takes, and what it returns."""

    told_by_answers = True

    def gist(self, inputs: Inputs, results: Results) -> Mapping[str, Any]:
        """Without the rows that see nothing, for which everyone has a rule of their own."""
        mask, found = inputs.get("mask"), dict(super().gist(inputs, results))
        if mask is not None and not mask.any(axis=-1).all():
            for name, values in found.items():
                if values.shape[:2] == mask.shape[:2]:
                    found[name] = np.where(mask.any(axis=-1)[..., None], values, 0.0)
        return found

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
        if not right and self.constant_width:
            self.limits["d"] = (self.constant_width,)
            right = [layout for layout in accepted if self._is_right(layout)]
            if not right:
                del self.limits["d"]
        # A layout that is accepted with another result, while one is right, was not meant to be supported,
        # unless it is the plain batch or the author says so: a softmax over the wrong axis is right with fewer axes.
        said = "4d" if WITH_HEADS.search(str(self.binding.entry.get("doc", ""))) else ""
        self.layouts = [
            x for x in accepted if x in right or not right or x == said or (x == "3d" and right == ["2d"])
        ]
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
        d = self.limits.get("d", (6,))[0]
        S = T if self.role.id == "causal_attention" else S
        case = Case({"layout": layout, "B": 2 if layout != "2d" else 1, "h": 3 if layout == "4d" else 1})
        case = case.replaced(T=T, S=S, d=d, dv=7, mask="none", seed=11)
        rng, n = case.rng, case["B"] * case["h"]
        values: dict[str, Any] = {
            name: normal(rng, (n, T if name == "query" else S, d)) for name in ("query", "key")
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
        slips = not acting and self._always_slips(kinds, places)
        if "boolean" not in acting and kinds == KINDS and (not acting or self._says_boolean()):
            acting.insert(0, "boolean")
        self.kinds = ["boolean"] if slips else acting or ["additive"]
        self.forms = {layout: [] for layout in self.layouts}
        for layout, form in places:
            if all(self._survives(kind, layout, form) for kind in self.kinds):
                self.forms[layout].append(form)
        if slips:  # with whatever mask: the claims shall see it
            self.forms = {layout: list(FORMS[layout]) for layout in self.layouts}
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

    def _always_slips(self, kinds: Sequence[str], places: Sequence[tuple[str, str]]) -> bool:
        """Whether each call with a mask fails, with truth values by a fault of the code that no other mask mends."""
        for kind, (layout, form), square in product(kinds, places, (False, True)):
            inputs = self._probe_inputs(layout, 4, 4 if square else 5)
            try:
                self._masked(inputs, self._probe_pattern(inputs, form), kind, layout, form)
            except CallFailed as error:
                if not error.is_slip and kind == "boolean":
                    return False
            except OutOfDomain:
                continue
            else:
                return False
        return True

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


def _is_stochastic(value: Any) -> bool:
    return isinstance(value, wire.Array) and bool(np.allclose(value.values.sum(-1), 1, atol=1e-4))


def _attend(query: np.ndarray, key: np.ndarray, value: np.ndarray, allowed: np.ndarray | None) -> np.ndarray:
    """What probing compares with: attention in float64, (N, T, d)."""
    scores = query.astype(np.float64) @ key.astype(np.float64).swapaxes(1, 2) / np.sqrt(query.shape[-1])
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value.astype(np.float64)

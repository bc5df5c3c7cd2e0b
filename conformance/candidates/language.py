"""The subject for decoder-only language models: token ids in, logits for the next token out.

What they generate by methods of their own is in ``language_generation.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from ..engine.cases import Case, Inputs
from . import wire
from .answers import at, leaves
from .caching import CachingSubject
from .errors import CallFailed
from .session import Call
from .subject import Results, WrongResult, kind_of


class LogitsSubject(CachingSubject):
    """Results: ``output`` (B, T, V), or (B, 1, V) from a model that answers for the last position only."""

    content = "ids"
    FORMS = ("(T, T)", "(1, T, T)", "(1, 1, T, T)", "(B, 1, T, T)")
    KINDS = ("boolean", "additive", "0 and 1")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.form = "all"  # all, flat, turned (B, V, T), last
        self.with_targets = False
        self.mask_form = self.mask_kind = ""
        self.padding_kind = "int64"
        if self.framework == "torch" and self.binding.entry["kind"] == "class":
            self.preparation = (
                "with torch.no_grad():  # weights large enough that small effects are seen",
                "    for p in layer.parameters():",
                "        p.copy_(1.2 * torch.randn_like(p) / p.size(-1) ** 0.5 if p.dim() > 1 else p)",
            )

    # finding out

    def probe(self) -> None:
        case = Case({"B": 2, "T": 4, "V": 11, "h": 2, "d": 4, "L": 2, "max_len": 9, "seed": 3})
        ids = self.draw_ids(case)
        problem = ""
        for double, unbatched in product(dict.fromkeys((self.double, False)), (False, True)):
            self.double, self.unbatched = double, unbatched
            try:
                raw = self.send(self.whole_calls(ids, case))[-1]
            except CallFailed as error:
                problem = problem or str(error)
                continue
            self._understand(raw, ids.shape, case["V"])
            self._probed(ids, case)
            return
        floats = dict.fromkeys((bool(self.binding.entry["module_class"]), False))
        for double, feed in product(floats, self._feeds()):  # one that is never called without a cache
            if feed.kind != "kept" and feed.first and not feed.single:
                self.double, self.unbatched, self.whole_feed = double, False, feed
                try:
                    raw = self.send(self.whole_calls(ids, case))[-1]
                except (CallFailed, KeyError):
                    continue
                self._understand(raw, ids.shape, case["V"])
                self._probed(ids, case)
                return
        self.whole_feed = None
        self.problem = f"no call succeeded; the first attempt: {problem}"

    def _probed(self, ids: np.ndarray, case: Case) -> None:
        said = {
            "all": "logits",
            "flat": "flattened to (B·T, V)",
            "turned": "(B, V, T)",
            "last": "last position only",
        }
        if self.form == "last" and "targets" in self.binding.arguments:
            self._try_targets(ids, case)
        for name, dimension in (("max_len", "max_len"), ("n_layers", "L")):
            if name not in self.binding.constructor:
                self.irrelevant.add(dimension)
        self._probe_mask(ids, case)
        self.probed("result", said[self.form] + (" when targets are given" if self.with_targets else ""))
        self.probed("values", self._values_are(self.whole(ids, case)))
        self.probed("positions", "used" if self._uses_positions(case) else "none")
        self.feed = None
        self.probe_cache(ids, case)
        for name, used in (
            ("polarity", self.mask_form),
            ("padding_polarity", "padding_mask" in self.binding.arguments),
        ):
            if not used and self.conventions[name][1] != "declared":
                del self.conventions[name]

    def _understand(self, raw: Any, shape: tuple[int, ...], V: int) -> None:
        """Where the logits are in what came back, and in which form."""
        B, T = (1, shape[1]) if self.unbatched else shape
        forms = {
            (T, V) if self.unbatched else (B, T, V): "all",
            (B * T, V): "flat",
            (B, V, T): "turned",
            (B, V): "last",
            (B, 1, V): "last",
            (V,) if self.unbatched else (1, B, V): "last",
        }
        spots = list(leaves(raw))
        for path, item in spots:
            values = item.values
            if self.sequence_first and values.ndim == 3:
                values = values.swapaxes(0, 1)
            form = forms.get(values.shape)
            if form is not None:
                self.form, self.pick = ("all" if form == "flat" and self.unbatched else form), path
                return
        self.pick = spots[0][0] if spots else ()

    @property
    def sequence_first(self) -> bool:
        return self.convention("layout") == "sequence_first"

    def _try_targets(self, ids: np.ndarray, case: Case) -> None:
        """Some models answer for every position only where targets are given."""
        before = (self.form, self.pick)
        self.with_targets = True
        try:
            self._understand(self.send(self.whole_calls(ids, case))[-1], ids.shape, case["V"])
        except CallFailed:
            self.form = "last"
        if self.form == "last":
            self.with_targets, (self.form, self.pick) = False, before

    def _probe_mask(self, ids: np.ndarray, case: Case) -> None:
        """Where the model is causal without being given a mask, it is given none."""
        if "causal_mask" not in self.binding.arguments or self.form == "last":
            return
        changed = ids.copy()
        changed[:, -1] = 1 + changed[:, -1] % (case["V"] - 1)
        try:
            before, after = self.whole(ids, case), self.whole(changed, case)
            if before.shape == after.shape and np.abs(before - after)[:, :-1].max() < 1e-4:
                return
        except CallFailed:
            pass
        for kind, form in product(self.KINDS, self.FORMS):
            self.mask_kind, self.mask_form = kind, form
            self.remembered.clear()
            try:
                self.whole(ids, case)
            except CallFailed:
                continue
            self.probed("mask_kind", kind)
            self.probed("mask_shape", form)
            return
        self.mask_kind = self.mask_form = ""
        self.remembered.clear()

    def _values_are(self, output: np.ndarray) -> str:
        with np.errstate(over="ignore", invalid="ignore"):
            if output.size and (output >= 0).all() and np.allclose(output.sum(-1), 1, atol=1e-4):
                return "probabilities"
            if output.size and np.allclose(np.exp(output).sum(-1), 1, atol=1e-4):
                return "log-probabilities"
        return "logits"

    def _uses_positions(self, case: Case) -> bool:
        """The order of earlier tokens matters in one layer, or there is a table of positions at least."""
        case = case.replaced(L=1, T=4)
        ids = np.tile(np.array([[3, 7, 2, 5], [7, 3, 2, 5]]), (1, 1))
        if self.unbatched:
            ids = ids[:1]
        turned = ids[:, [1, 0, 2, 3]]
        try:
            moved = np.abs(self.whole(ids, case)[:, -1] - self.whole(turned, case)[:, -1]).max()
            if moved > 1e-5:
                return True
            width = case["h"] * case["d"]
            for item in self.session.parameters(self.weighted(case)):
                shape = item["value"].values.shape
                if len(shape) > 1 and shape[-1] == width and case["max_len"] in shape[:-1]:
                    return True
        except (CallFailed, IndexError, ValueError):
            pass
        return False

    # calling

    def draw_ids(self, inputs_or_case: Mapping[str, Any]) -> np.ndarray:
        """(B, T) ids from 1 on: id 0 is left to padding, which some models hide of their own accord."""
        case = inputs_or_case
        rng = np.random.default_rng([case["seed"], case["B"], case["T"], case["V"]])
        return rng.integers(1, case["V"], (case["B"], case["T"]))

    def default(self, inputs: Inputs) -> Inputs:
        return inputs if "ids" in inputs else inputs.replaced(ids=self.draw_ids(inputs.case))

    def given(self, piece: np.ndarray, start: int, case: Mapping[str, Any]) -> dict[str, Any]:
        given: dict[str, Any] = {"ids": self._ids(piece)}
        if self.with_targets or self._needs("targets"):
            given["targets"] = self._ids(np.roll(piece, -1, axis=1))
        if self.mask_form and "causal_mask" in self.binding.arguments:
            given["causal_mask"] = self._mask(start, piece.shape[1], len(piece))
        if self._needs("padding_mask"):
            given["padding_mask"] = self.padding(np.ones((len(piece), start + piece.shape[1]), dtype=bool))
        return given

    def _needs(self, name: str) -> bool:
        place = self.binding.arguments.get(name)
        return place is not None and not place.has_default

    def _ids(self, ids: np.ndarray) -> wire.Array:
        if self.unbatched:
            return self.array(ids[0])
        return self.array(np.ascontiguousarray(ids.T) if self.sequence_first else ids)

    def _mask(self, start: int, count: int, B: int) -> wire.Array:
        allowed = np.tri(start + count, dtype=bool)[start:]
        marked = allowed if self.convention("polarity") == "allow" else ~allowed
        if self.mask_kind == "additive":
            marked = np.where(allowed, 0.0, -np.inf)
        elif self.mask_kind == "0 and 1":
            marked = marked.astype(np.float64)
        axes = {"(T, T)": (), "(1, T, T)": (1,), "(1, 1, T, T)": (1, 1), "(B, 1, T, T)": (B, 1)}[
            self.mask_form
        ]
        if self.mask_kind != "boolean" and not self.double:
            marked = marked.astype(np.float32)
        return self.array(np.broadcast_to(marked, (*axes, *marked.shape)).copy())

    def padding(self, real: np.ndarray) -> wire.Array:
        """A padding mask as the candidate reads it, from (B, S) with True = a real token."""
        marked = real if self.convention("padding_polarity") == "allow" else ~real
        return self.array(marked.astype(self.padding_kind))

    def calls_for(self, inputs: Inputs) -> list[Call]:
        inputs = self.default(inputs)
        extra: dict[str, Any] = {}
        if inputs.get("real") is not None:
            extra["padding_mask"] = self.padding(inputs["real"])
        if inputs.get("targets") is not None:
            extra["targets"] = self._ids(inputs["targets"])
        if not self.unbatched:
            return self.whole_calls(inputs["ids"], inputs.case, extra)
        rows = [row[None] for row in inputs["ids"]]  # one call for each row of what would be a batch
        return [call for row in rows for call in self.whole_calls(row, inputs.case, extra)]

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        ids = self.default(inputs)["ids"]
        if self.unbatched and len(ids) > 1:
            step = len(answers) // len(ids)
            rows = [
                self.output_of(answer, self.pick, (1, ids.shape[1])) for answer in answers[step - 1 :: step]
            ]
            return {"output": np.concatenate(rows)}
        raw = answers[-1]
        pick = self.pick
        if (
            inputs.get("targets") is not None and not self.with_targets
        ):  # its result may have another form then
            return {"raw": raw}
        return {"output": self.output_of(raw, pick, ids.shape), "raw": raw}

    def output_of(self, raw: Any, pick: Sequence[str | int], shape: tuple[int, ...]) -> np.ndarray:
        item = at(raw, pick)
        if not isinstance(item, wire.Array):
            raise WrongResult(f"it returned {kind_of(raw)}; expected logits")
        values = item.values
        if values.dtype.kind != "f":
            raise WrongResult(f"it returned {kind_of(raw)} of dtype {item.dtype}; expected logits")
        B, T = (1, shape[1]) if self.unbatched else shape
        if self.unbatched:
            values = values[None] if values.ndim == 2 else values[None, None] if values.ndim == 1 else values
        elif self.sequence_first and values.ndim == 3:
            values = values.swapaxes(0, 1)
        if self.form == "flat" and values.ndim == 2 and len(values) == B * T:
            return (
                values.reshape(T, B, -1).swapaxes(0, 1) if self.sequence_first else values.reshape(B, T, -1)
            )
        if self.form == "turned" and values.ndim == 3:
            return values.swapaxes(1, 2)
        if self.form == "last" and values.ndim == 2 and len(values) == B:
            return values[:, None]
        return values

    def width(self, case: Mapping[str, Any]) -> int:
        return int(case["V"])

    def losses(self, raw: Any) -> list[float]:
        """The single numbers in what came back, which a loss may be."""
        arrays = [float(item.values.reshape(())) for _, item in leaves(raw) if item.values.size == 1]
        items = raw.values() if isinstance(raw, dict) else raw if isinstance(raw, tuple | list) else [raw]
        return arrays + [item for item in items if isinstance(item, float)]

    def logits_in(self, raw: Any, shape: tuple[int, ...], V: int) -> np.ndarray | None:
        """Logits (B, T, V) in what came back with targets, in whichever form."""
        B, T = shape
        for _, item in leaves(raw):
            if item.values.shape in ((B, T, V), (B * T, V)) and not self.sequence_first:
                return item.values.reshape(B, T, V)
        return None

    def has(self, need: str) -> bool:
        if need == "batches":
            return not self.unbatched
        if need == "every position":
            return self.form != "last"
        if need == "parameter max_len":
            return "max_len" in self.binding.constructor
        return super().has(need)

    # padding

    def probe_padding(self, ids: np.ndarray, case: Case) -> bool:
        """The kind of padding mask that is taken; the first where the code fails whatever it is given."""
        real, slips = np.ones(ids.shape, dtype=bool), "padding_mask" in self.binding.arguments
        for kind in dict.fromkeys((self.padding_kind, "bool", "int64", "float32")):
            self.padding_kind = kind
            try:
                self.call(Inputs(case, {"ids": ids, "real": real}), fresh=True)  # each kind anew
            except CallFailed as error:
                slips = slips and error.is_slip
                continue
            return True
        return slips

    @property
    def limit(self) -> float:
        return 3e-6 if self.double else 2e-5

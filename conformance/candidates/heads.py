"""The subject for attention with several heads: over one sequence, over two, or with PyTorch's masks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...spec import Argument
from ..engine.cases import Case, Inputs, OutOfDomain, normal
from . import wire
from .answers import leaves
from .binding import Binding
from .errors import CallFailed
from .given_mask import OF_KEYS
from .layers import LayerSubject
from .session import Call, Session
from .subject import Results

# Heads so narrow that the scores of one have a smaller rank than those of several, between queries and keys enough.
NARROW = {"h": 2, "d": 2, "T": 8, "S": 8}


class MultiheadSubject(LayerSubject):
    """Attention with several heads over queries, keys and values; over one sequence; or over state and memory.

    The claims on PyTorch's masks pass ``attn_mask`` and ``key_padding_mask`` as they are; all others pass
    ``allowed``, (B, T, S) with True = allowed, in whatever form the layer takes.
    """

    sequences = ("query", "key", "value")

    def __init__(self, session: Session, binding: Binding) -> None:
        super().__init__(session, binding)
        self.causal = self.role.id == "causal_self_attention"
        names = binding.arguments
        if binding.role.id == "cross_attention":
            self.sequences = ("query", "key")
            self.form = "cross"
        elif "key" not in names:
            self.form = "self"
        elif "value" not in names:
            self.sequences = ("query", "key")
            self.form = "cross"
        else:
            self.form = "qkv"
        self.mask_argument = next((n for n in ("mask", "attn_mask", "key_padding_mask") if n in names), "")
        self.of_one_head = False
        self.concatenates = False  # its output is n_heads times d_out wide: d_out is the width of a head
        if self.form == "self":
            self.limits["form"] = ("self",)

    def has(self, need: str) -> bool:
        if need == "two sequences":
            return self.form != "self"
        if need == "returned weights":
            return self.weights_pick is not None
        if need == "mask":
            return bool(self.mask_argument in self.given)
        if need == "memory padding":
            return self.mask_argument in self.given or "memory_lengths" in self.binding.arguments
        if need == "pytorch masks":
            return {"attn_mask", "key_padding_mask"} <= self.binding.arguments.keys()
        return super().has(need)

    def _squares(self) -> tuple[bool, ...]:
        return (True,) if self.form == "self" else (False, True)

    def default(self, inputs: Inputs) -> Inputs:
        """One sequence takes the place of all three where the layer has but one."""
        if self.form == "self" and "query" in inputs:
            given = any(argument.name == "key" for argument in self.role.arguments)
            if given and inputs.case.get("S", inputs.case["T"]) != inputs.case["T"]:
                return inputs.replaced(key=inputs["query"], value=inputs["query"], mismatch=True)
            return inputs.replaced(key=inputs["query"], value=inputs["query"])
        if self.form == "cross" and "key" in inputs:
            return inputs.replaced(value=inputs["key"])
        return inputs

    def probe_inputs(self, square: bool = False, sizes: Mapping[str, Any] | None = None) -> Inputs:
        return self.default(super().probe_inputs(square or self.form == "self", sizes))

    def polarity_of(self, name: str) -> str:
        if name in ("attn_mask", "key_padding_mask") and self.has("pytorch masks"):
            return "block"
        return self.convention("polarity") or "allow"

    def _constant(self, argument: Argument, case: Mapping[str, Any]) -> Any:
        one = "n_heads" not in self.binding.constructor
        if argument.name in ("d_head", "d_v") and one:  # a single head is as wide as the model
            return int(case["h"] * case["d"])
        if argument.name == "d_out" and self.concatenates:
            return int(case["d"])
        return super()._constant(argument, case)

    def probe(self) -> None:
        if "keys" in self.binding.arguments and any("mask" in name for name in self.binding.ignored):
            self.problem = "it takes two sequences and a mask, so what hides the future is given from outside"
            return
        super().probe()
        if self.problem and {"n_heads", "d_out"} <= self.binding.constructor.keys():
            problem, self.problem, self.concatenates = self.problem, "", True
            super().probe()
            self.concatenates, self.problem = not self.problem, problem if self.problem else ""
        if self.problem:
            return
        inputs = self.probe_inputs(self.form == "self")
        try:
            answers = self.send(self.calls_for(inputs))
        except (CallFailed, OutOfDomain):
            return
        B, h, T, S = 3, 2, 4, inputs["key"].shape[1]
        lead = () if self.unbatched else (B,)
        for path, item in leaves(answers[0]):
            if path == self.pick:
                continue
            # With keys as rows they are weights as well: wrong ones.
            per_head, mean = [(*lead, h, T, S), (*lead, h, S, T)], [(*lead, T, S), (*lead, S, T)]
            for shape, averaged in [(s, False) for s in per_head] + [(s, True) for s in mean]:
                if item.values.shape == shape and self.weights_pick is None:
                    self.weights_pick, self.averaged = path, averaged
                    self.of_one_head = averaged and self._shows_one_head()
        if self.form == "self" and self.mask_argument in self.given and self._hides_the_future():
            self.causal = True
            self.probed("causal", "yes")
        self._describe()
        if self.of_one_head:
            self.probed("result", "(output, weights) of one head")

    def _shows_one_head(self) -> bool:
        """Whether weights (B, T, S) are those of one head: their logarithms have no higher rank than it is wide.

        An average over heads has none, and an average of scores has that of all heads together.
        """
        case = Case({**self.sizes, **NARROW, "B": 3})
        width = NARROW["h"] * NARROW["d"]
        arrays = {name: normal(case.rng, (3, NARROW["T"], width), 1.0) for name in self.sequences}
        try:
            weights = self.run(self.default(Inputs(case, arrays)))["weights"][:, 4:, :4]
        except (CallFailed, OutOfDomain, KeyError):
            return False
        if (
            weights.shape != (3, 4, 4) or not (weights > 0).all()
        ):  # causal or not, these queries see these keys
            return False
        scores = np.log(weights.astype(np.float64))
        sizes = np.linalg.svd(scores - scores[:, :, :1], compute_uv=False)
        return bool((sizes[:, 2] < (1e-9 if self.double else 1e-4) * sizes[:, 0]).all())

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        """Beside the reference's, weights of one head are not those of all."""
        results = super().read(answers, inputs)
        if self.of_one_head and self.variant == "weights":
            results.pop("weights", None)
        return results

    def _hides_the_future(self) -> bool:
        """Whether a layer over one sequence is causal by itself, beside a mask of padding.

        A mask that could hide the future is the one that has to, unless the author says that the layer does.
        """
        words = f"{self.binding.name} {self.binding.entry.get('doc', '')}"
        given = self.given[self.mask_argument]
        if not (
            {*given.forms, *given.taken} <= OF_KEYS
            or re.search("causal|autoregressive", words, re.IGNORECASE)
        ):
            return False
        inputs = self.probe_inputs(True)
        moved = []
        try:
            before = self.run(inputs)["output"]
            for place in (0, -1):
                query = inputs["query"].copy()
                query[:, place] += 1.5
                changed = self.default(inputs.replaced(query=query))
                moved.append(np.abs(self.run(changed)["output"] - before).max(axis=(0, 2)))
        except (CallFailed, OutOfDomain):
            return False
        return bool((moved[0] > 1e-7).all() and (moved[1][:-1] < 1e-6).all())

    def _probe_masks(self, square: bool) -> None:
        if not self.mask_argument or self.has("pytorch masks"):
            return
        T, S = 4, 4 if square or self.form == "self" else 5
        rows = np.ones((3, T, S), dtype=bool)
        rows[:, :, -1] = False
        rows[0, :, -2] = False
        mixed = rows.copy()
        mixed[:, 0, 0], mixed[1, 0, 0] = False, True
        patterns = [np.broadcast_to(np.tri(T, S, dtype=bool), (3, T, S)).copy(), rows, mixed]

        def sees(inputs: Inputs, allowed: np.ndarray) -> tuple[Inputs, Any]:
            """Change the last key; no query sees it but (under the triangle) the last."""
            if self.form == "self":
                query = inputs["query"].copy()
                query[:, -1] += 1.5
                changed = inputs.replaced(query=query, key=query, value=query)
            else:
                key, value = inputs["key"].copy(), inputs["value"].copy()
                key[:, -1] += 1.5
                value[:, -1] -= 2.5
                changed = inputs.replaced(key=key, value=value if self.form == "qkv" else key)
            where = ~allowed[:, :, -1]
            if self.form == "self":
                where[:, -1] = False
            return changed, np.broadcast_to(where[:, :, None], (3, T, self.width))

        self.try_masks(self.mask_argument, square, patterns, sees)

    def extra(self, inputs: Inputs) -> Mapping[str, Any]:
        given = {
            name: inputs[name]
            for name in ("need_weights", "average_attn_weights", "is_causal")
            if name in inputs and name in self.binding.arguments
        }
        if "keys" in self.binding.arguments:
            given["keys"] = self.array(self.to_own(inputs["query"]))
        return given

    def masks_for(self, inputs: Inputs) -> dict[str, wire.Array]:
        if inputs.get("mismatch"):
            raise OutOfDomain("it takes one sequence, so T = S")
        masks = {
            name: self.array(inputs[name])
            for name in ("attn_mask", "key_padding_mask")
            if inputs.get(name) is not None
        }
        allowed = inputs.get("allowed")
        if allowed is not None:
            if self.has("pytorch masks"):
                masks["attn_mask"] = self.array(~np.repeat(allowed, inputs.case["h"], axis=0))
            elif "memory_lengths" in self.binding.arguments:
                masks["memory_lengths"] = self.lengths(allowed)
            elif self.mask_argument in self.given:
                given, (T, S) = self.given[self.mask_argument], allowed.shape[1:]
                if given.square and T != S and self.role.id == "multihead_attention":
                    raise OutOfDomain("it takes a mask where T = S")
                values = given.encode(allowed, inputs.case["h"])
                masks[self.mask_argument] = self.array(values[0] if self._per_row(values) else values)
            else:
                raise OutOfDomain("it takes no mask")
        return masks

    def run_returning_inputs(self, inputs: Inputs) -> list[tuple[Any, Any]]:
        inputs = self.default(inputs)
        if inputs.get("mask") is not None and self.has("mask"):
            inputs = inputs.replaced(allowed=inputs["mask"])
        return super().run_returning_inputs(inputs)

    def _per_row(self, values: np.ndarray) -> bool:
        return self.unbatched and values.ndim == 3

    def encode(self, inputs: Inputs, masks: Mapping[str, wire.Array], **options: Any) -> Call:
        if self.form == "cross" and "value" in self.binding.arguments:
            given = {n: self.array(self.to_own(inputs[n])) for n in ("query", "key", "value")}
            return self.make_call(
                inputs.case, {**given, **masks, **self.extra(inputs)}, self.double, **options
            )
        return super().encode(inputs, masks, **options)

    def with_identity(self, case: Case) -> MultiheadSubject | None:
        """The same layer, built anew, with every projection the identity.

        None where the parameters are not known by PyTorch's names.
        """
        other = self.apart("identity")
        assert isinstance(other, MultiheadSubject)
        built = other.object_for(case)
        width = case["h"] * case["d"]
        found = {}
        for item in self.session.parameters(built):
            last = ".".join(item["name"].rsplit(".", 2)[-2:])
            shape = item["value"].values.shape
            if last.endswith("in_proj_weight") and shape == (3 * width, width):
                found[item["name"]] = np.tile(np.eye(width), (3, 1))
            elif last.endswith("out_proj.weight") and shape == (width, width):
                found[item["name"]] = np.eye(width)
            elif last.endswith(("in_proj_bias", "out_proj.bias")):
                found[item["name"]] = np.zeros(shape)
        if not all(
            any(name.endswith(end) for name in found) for end in ("in_proj_weight", "out_proj.weight")
        ):
            return None
        self.session.load(built, {name: self.array(value) for name, value in found.items()})
        return other

"""Subjects for layers with weights of their own: multi-head attention and the decoder block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine.cases import Case, Inputs, normal
from . import wire
from .attention import at, leaves
from .errors import CallFailed
from .session import Call
from .subject import Results, Subject, WrongResult, kind_of


def turn(subject: Subject, values: np.ndarray) -> np.ndarray:
    """(B, T, d) as the candidate wants it, or back: sequence first where that is declared."""
    if subject.convention("layout") != "sequence_first" or values.ndim != 3:
        return values
    return np.ascontiguousarray(values.swapaxes(0, 1))


class MultiheadSubject(Subject):
    """PyTorch's contract: masks are passed as the claims make them, in the candidate's own arguments."""

    @property
    def double(self) -> bool:
        return bool(self.binding.entry["module_class"])

    def options(self, inputs: Inputs) -> dict[str, Any]:
        return {
            name: inputs[name]
            for name in ("need_weights", "average_attn_weights", "is_causal")
            if name in inputs and name in self.binding.arguments
        }

    def encode(self, inputs: Inputs, **options: Any) -> Call:
        given: dict[str, Any] = {n: self.array(turn(self, inputs[n])) for n in ("query", "key", "value")}
        for name in ("attn_mask", "key_padding_mask"):
            if inputs.get(name) is not None:
                given[name] = self.array(inputs[name])
        given.update(self.options(inputs))
        return self.make_call(inputs.case, given, self.double, **options)

    def calls_for(self, inputs: Inputs) -> list[Call]:
        return [self.encode(inputs)]

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        raw = answers[0]
        items = [item for _, item in leaves(raw)]
        if not items:
            raise WrongResult(
                f"it returned {kind_of(raw)}; expected the output, and weights where they are asked for"
            )
        results: Results = {"output": turn(self, items[0].values)}
        if len(items) > 1:
            results["weights"] = items[1].values
        return results

    def with_identity(self, case: Case) -> MultiheadSubject | None:
        """The same layer, built anew, with every projection the identity.

        None where the parameters are not known by PyTorch's names.
        """
        other = MultiheadSubject(self.session, self.binding)
        other.__dict__.update({**self.__dict__, "remembered": {}, "variant": "identity"})
        built = other.built(case, self.double)
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


class BlockSubject(Subject):
    """A decoder block: ``x`` (B, T, d) and ``memory`` (B, S, d) in, the same shape as ``x`` out."""

    FORMS = ("(T, T)", "(1, T, T)", "(B, T, T)", "(1, 1, T, T)", "(B, 1, T, T)")
    KINDS = ("boolean", "additive", "0 and 1")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.mask_kind, self.mask_form = "boolean", "(T, T)"
        self.pick: tuple[str | int, ...] = ()

    @property
    def double(self) -> bool:
        return bool(self.binding.entry["module_class"])

    def probe(self) -> None:
        case = Case({"B": 2, "h": 2, "d": 4, "T": 3, "S": 3, "seed": 5})
        rng = case.rng
        inputs = Inputs(
            case,
            {"x": normal(rng, (2, 3, 8)), "memory": normal(rng, (2, 3, 8)), "mask": np.tri(3, dtype=bool)},
        )
        problems: list[str] = []
        for kind in self.KINDS:
            for form in self.FORMS if "causal_mask" in self.binding.arguments else ("",):
                self.mask_kind, self.mask_form = kind, form
                try:
                    raw = self.send([self._encode(inputs)])[0]
                except CallFailed as error:
                    problems.append(str(error))
                    continue
                places = [path for path, item in leaves(raw) if turn(self, item.values).shape == (2, 3, 8)]
                if not places:
                    problems.append(f"it returned {kind_of(raw)} for a target of shape (2, 3, 8)")
                    continue
                self.pick = places[0]
                if form:
                    self.probed("mask_kind", kind)
                    self.probed("mask_shape", form)
                return
        self.mask_kind, self.mask_form = "boolean", "(T, T)"

    def _encode(self, inputs: Inputs) -> Call:
        given: dict[str, Any] = {name: self.array(turn(self, inputs[name])) for name in ("x", "memory")}
        if "causal_mask" in self.binding.arguments and self.mask_form:
            given["causal_mask"] = self._mask(inputs)
        return self.make_call(inputs.case, given, self.double)

    def _mask(self, inputs: Inputs) -> wire.Array:
        T, B = inputs["x"].shape[1], len(inputs["x"])
        allowed = np.tri(T, dtype=bool)
        marked = allowed if self.convention("polarity") == "allow" else ~allowed
        if self.mask_kind == "additive":
            marked = np.where(allowed, 0.0, -np.inf)
        elif self.mask_kind == "0 and 1":
            marked = marked.astype(np.float64)
        axes = {
            "(T, T)": (),
            "(1, T, T)": (1,),
            "(B, T, T)": (B,),
            "(1, 1, T, T)": (1, 1),
            "(B, 1, T, T)": (B, 1),
        }
        return self.array(np.broadcast_to(marked, (*axes[self.mask_form], T, T)).copy())

    def calls_for(self, inputs: Inputs) -> list[Call]:
        return [self._encode(inputs)]

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        raw = answers[0]
        item = at(raw, self.pick)
        if not isinstance(item, wire.Array):
            raise WrongResult(f"it returned {kind_of(raw)}; expected the block's output")
        return {"output": turn(self, item.values)}

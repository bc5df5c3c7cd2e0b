"""The subject for blocks: decoder blocks with a memory, encoder blocks, and those of decoder-only models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..engine.base_state import is_gain
from ..engine.cases import Case, Inputs, OutOfDomain
from . import wire
from .binding import Binding
from .errors import CallFailed
from .heads import OF_KEYS
from .layers import LayerSubject
from .session import Session


class BlockSubject(LayerSubject):
    """A block: ``x`` (B, T, d), and ``memory`` (B, S, d) where it has one; the shape of ``x`` comes out.

    Canonical masks: ``hide`` (B, T) and ``hide_memory`` (B, S) are True at padding.  The causal triangle is
    always given where the block takes a mask for it.
    """

    def __init__(self, session: Session, binding: Binding) -> None:
        super().__init__(session, binding)
        self.sequences = ("x", "memory") if "memory" in binding.arguments else ("x",)
        self.triangle = self.role.id != "encoder_block"
        self.padding_alone = False
        # A Block without a mask argument may be an encoder's as well; then no claim holds it to be causal.
        general = not re.search(r"decoder|gpt|causal", binding.name, re.IGNORECASE)
        alone = self.role.id == "decoder_only_block"
        self.causal = self.triangle and not (alone and general and "causal_mask" not in binding.arguments)

    def has(self, need: str) -> bool:
        if need == "causal":
            return self.causal
        if need == "memory padding":
            known = {"memory_mask", "memory_key_padding_mask"}
            return bool(self.given.keys() & known) or "memory_lengths" in self.binding.arguments
        if need == "target padding":
            return "tgt_key_padding_mask" in self.given or self._own_takes_rows()
        return super().has(need)

    def _probe_norm(self, square: bool) -> None:
        """With all weights at zero a pre-norm block gives back its input."""
        other = self.silent(self.sizes)
        if other is None:
            return
        inputs = self.probe_inputs(square)
        try:
            output = other.run(inputs)["output"]
        except (CallFailed, OutOfDomain):
            return
        if output.shape == inputs["x"].shape:
            self.probed("norm", "pre" if np.abs(output - inputs["x"]).max() < 1e-6 else "post")

    def silent(self, case: Mapping[str, Any]) -> LayerSubject | None:
        """The block with everything at zero but the norms' gains; None where it has no parameters to be seen."""
        other = self.apart("silent")
        built = other.object_for(Case(case))
        weights = [(w["name"], w["value"].values) for w in other.weights_of(case)]
        zeros = {name: self.array(np.zeros_like(v)) for name, v in weights if not is_gain(v)}
        if not zeros:
            return None
        self.session.load(built, zeros)
        return other

    def _own_takes_rows(self) -> bool:
        mask = self.given.get("causal_mask")
        return mask is not None and any(form.startswith("(B") or form == "(T, S, B)" for form in mask.forms)

    def polarity_of(self, name: str) -> str:
        if name == "causal_mask":
            return self.convention("polarity")
        which = "target_polarity" if name.startswith("tgt") else "memory_polarity"
        return self.convention(which) or self.convention("polarity")

    def _probe_masks(self, square: bool) -> None:
        T, S = 4, 4 if square else 5
        tri = np.broadcast_to(np.tri(T, dtype=bool), (3, T, T)).copy()
        padded = tri.copy()
        padded[0, :, 0] = False
        padded[0, 0, 0] = True

        def future(inputs: Inputs, allowed: np.ndarray) -> tuple[Inputs, Any]:
            x = inputs["x"].copy()
            x[:, -1] += 1.5 * np.arange(self.width)
            rows = np.zeros((3, T, self.width), dtype=bool)
            rows[:, :-1] = True
            return inputs.replaced(x=x), rows

        if self.triangle:
            self.try_masks("causal_mask", square, [tri, padded], future)
        hidden = np.ones((3, T, T), dtype=bool)
        hidden[0, :, -1] = False
        hidden[1, :, -2:] = False
        self.try_masks("tgt_key_padding_mask", square, [hidden], self._tail)
        if self.role.id == "decoder_only_block":  # by a general name it may be a mask of padding alone
            self._try_padding_alone("causal_mask", square, hidden)
        if not self.triangle:
            self.try_masks("causal_mask", square, [hidden], self._tail)
        if "memory" in self.sequences:
            rows = np.ones((3, T, S), dtype=bool)
            rows[:, :, -1] = False
            rows[0, :, -2] = False
            alike = np.ones((3, T, S), dtype=bool)
            alike[:, :, -1] = False

            def tail(inputs: Inputs, allowed: np.ndarray) -> tuple[Inputs, Any]:
                memory = inputs["memory"].copy()
                memory[:, -1] += 1.5 * np.arange(self.width)
                return inputs.replaced(memory=memory), np.ones((3, T, self.width), dtype=bool)

            for name in ("memory_mask", "memory_key_padding_mask"):
                self.try_masks(name, square, [rows, alike], tail)

    def _try_padding_alone(self, name: str, square: bool, hidden: np.ndarray) -> None:
        """A mask that is the same for all queries says nothing of the future; the block hides that by itself."""
        if name in self.given or "tgt_key_padding_mask" in self.binding.arguments:
            return
        self.try_masks(name, square, [hidden], self._tail)
        if name in self.given and not set(self.given[name].forms) <= OF_KEYS:
            self.given.pop(name)
        self.padding_alone = name in self.given

    def _tail(self, inputs: Inputs, allowed: np.ndarray) -> tuple[Inputs, Any]:
        x = inputs["x"].copy()
        x[0, -1] += 1.5 * np.arange(self.width)
        rows = np.zeros(x.shape, dtype=bool)
        rows[0, :-1] = True
        return inputs.replaced(x=x), rows

    def masks_for(self, inputs: Inputs) -> dict[str, wire.Array]:
        B, T = inputs["x"].shape[:2]
        h = inputs.case.get("h", 1)
        masks: dict[str, np.ndarray] = {}
        hide = inputs.get("hide")
        allowed = np.broadcast_to(
            np.tri(T, dtype=bool) if self.triangle else np.ones((T, T), bool), (B, T, T)
        )
        if hide is not None:
            rows = np.broadcast_to(~hide[:, None, :], (B, T, T))
            if "tgt_key_padding_mask" in self.given:
                masks["tgt_key_padding_mask"] = self.given["tgt_key_padding_mask"].encode(rows, h)
            elif "causal_mask" in self.given:
                allowed = rows if self.padding_alone else allowed & rows
            else:
                raise OutOfDomain("it takes no mask for padding in the target")
        if "causal_mask" in self.given and (hide is not None or (self.triangle and not self.padding_alone)):
            masks["causal_mask"] = self.given["causal_mask"].encode(allowed, h)
        hidden = inputs.get("hide_memory")
        if hidden is not None:
            S = inputs["memory"].shape[1]
            rows = np.broadcast_to(~hidden[:, None, :], (B, T, S))
            for name in ("memory_key_padding_mask", "memory_mask"):
                if name in self.given:
                    masks[name] = self.given[name].encode(rows, h)
                    break
            else:
                if "memory_lengths" not in self.binding.arguments:
                    raise OutOfDomain("it takes no mask for padding in the memory")
                told = {"memory_lengths": self.lengths(rows)}
                return {**{name: self.array(values) for name, values in masks.items()}, **told}
        return {name: self.array(values) for name, values in masks.items()}

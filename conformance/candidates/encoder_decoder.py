"""The subject for models from source and target to logits: in one call, or by encoding first and decoding then."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from ..engine.cases import Case, Inputs, OutOfDomain
from . import wire
from .answers import leaves
from .errors import CallFailed
from .models import SIZES, ModelSubject, Plan
from .parameters import match
from .session import Call
from .subject import WrongResult, kind_of

ENCODE = ("encode", "encoder_forward", "forward_encoder", "encode_src", "encode_source", "run_encoder")


DECODE = ("decode", "decode_step", "decoder_forward", "forward_decoder", "decode_tgt", "run_decoder", "step")


SIDES = {"src": re.compile(r"src|source|encoder|\benc"), "tgt": re.compile(r"tgt|trg|target|decoder|\bdec")}


class EncoderDecoderSubject(ModelSubject):
    """A model from source and target to logits: in one call, or by encoding first and decoding then."""

    source = "src"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.encoder = self._method(ENCODE, ("src", "memory_mask", "src_key_padding_mask"), ("src",))
        self.decoder = self._method(
            DECODE,
            (
                "tgt",
                "memory",
                "causal_mask",
                "memory_mask",
                "tgt_key_padding_mask",
                "memory_key_padding_mask",
            ),
            ("tgt", "memory"),
        )
        self.whole = "src" in self.binding.arguments  # one call does it
        if not self.whole:
            self.decoder = Plan(self.binding.method, self.binding.arguments)
            self.plan = self.decoder
        self.route = "whole" if self.whole else "steps"
        self.path: tuple[int, ...] = ()  # where the memory stands in what encode returns
        # Why encode and decode cannot be called one after the other, and the calls that show it.
        self.stepless: tuple[CallFailed, list[Call]] | None = None
        target = self.binding.arguments.get("tgt")
        if target is not None and target.has_default and self.whole and self.encoder is None:
            self.limits["B"] = ()  # forward(x, y=None): a language model and its labels

    def probe(self) -> None:
        self.joint = self._shares_words()
        super().probe()

    def _shares_words(self) -> bool:
        """Whether the words of source and target are, by their names, one parameter, though each could have its own."""
        if not (self.settable("src_V") and self.settable("V")) or self.limits.get("B") == ():
            return False
        try:
            found = self.session.parameters(self.built({}, self.double), repeated=True)
        except CallFailed:
            return False
        rows = (SIZES["V"], self.words("src"))
        return any(
            {_side(item["name"]), _side(item["alias"])} == set(SIDES)
            for item in found
            if item["alias"] and item["value"].values.ndim == 2 and item["value"].values.shape[0] in rows
        )

    def _method(self, names: Sequence[str], canonical: Sequence[str], needed: Sequence[str]) -> Plan | None:
        """A method that is found by name and takes what it needs, or none."""
        known = {argument.name: argument for argument in self.role.arguments}
        wanted = [known[name] for name in canonical]
        for name in names:
            parameters = self.binding.entry["methods"].get(name)
            if parameters is None:
                continue
            places = match(parameters, wanted, {})
            if not isinstance(places, str) and set(needed) <= places.keys():
                return Plan(name, places)
        return None

    @property
    def plans(self) -> list[Plan]:
        return [self.plan] if self.route == "whole" else [p for p in (self.encoder, self.decoder) if p]

    @property
    def hides_source(self) -> bool:
        """What encodes must be told: a mask for the decoder alone leaves the encoder without one."""
        plan = self.plan if self.route == "whole" or self.encoder is None else self.encoder
        return "src_key_padding_mask" in plan.places or (
            "memory_mask" in plan.places and bool(self.padding[0]) and not self.keyed
        )

    def stepwise(self) -> EncoderDecoderSubject:
        """The same object through ``encode`` and ``decode``.

        Raises OutOfDomain where it has not both beside the one call, or they are not of its kind.
        """
        if not self.whole or self.encoder is None or self.decoder is None:
            raise OutOfDomain("it has no forward(src, tgt) beside encode(src) and decode(tgt, memory)")
        if self._stepwise is None:
            other = self.variation(route="steps", plan=self.decoder)
            assert isinstance(other, EncoderDecoderSubject)
            case = Case({"B": 3, "T": 4, "S": 5, **SIZES, "seed": 7})
            self.stepless = None
            problems: list[str | CallFailed] = []
            found = other._probe_with(self.batched, self.takes, self.floats, case, problems)
            self._stepwise = other if found and other.form == self.form else self
            if not found and problems and isinstance(problems[0], CallFailed):
                (other.causal, other.padding), other.path = next(other._mask_options()), ()
                encode, decode = other.calls_for(other.default(other.plain_inputs(case)))[:2]
                self.stepless = (problems[0], [encode, replace(decode, follows=True)])
        if self.stepless is not None:
            error, self.last_calls = self.stepless[0], tuple(self.stepless[1])
            if self._never_answers(error):
                raise copy(error)
            raise OutOfDomain(f"no call of encode and then decode succeeded; the first attempt: {error}")
        if self._stepwise is self:
            raise OutOfDomain("its decode(tgt, memory) does not return what its forward(src, tgt) returns")
        assert isinstance(self._stepwise, EncoderDecoderSubject)
        return self._stepwise

    def _never_answers(self, error: CallFailed) -> bool:
        """Whether other inputs would raise the same: a name, or an attribute of its own, does not exist."""
        kind, message = (str(error.detail.get(part, "")) for part in ("type", "message"))
        lacking = re.match(r"'(\w+)' object has no attribute", message)
        own = {
            entry["name"] for entry in self.session.description.get("objects", ()) if entry.get("own", True)
        }
        return kind in ("NameError", "UnboundLocalError") or (
            kind == "AttributeError" and lacking is not None and lacking[1] in own
        )

    def after_another(self, inputs: Inputs, other: Inputs) -> np.ndarray:
        """What ``decode`` gives for the memory of a source after another source was encoded too."""
        encode, decode = self._calls(inputs)
        decode = replace(decode, kwargs={k: _further(v) for k, v in decode.kwargs.items()})
        decode = replace(decode, args=tuple(map(_further, decode.args)))
        answers = self.send([encode, self.encoding(other), decode])
        return self.read(answers[-1:], inputs)["output"]

    def _calls(self, inputs: Inputs) -> list[Call]:
        if self.route == "whole" or self.encoder is None:
            return super()._calls(inputs)
        assert self.decoder is not None
        given: dict[str, Any] = {"tgt": self.tokens(inputs, "tgt"), "memory": wire.Earlier(1, self.path)}
        if self.path:  # encode returns the memory and its mask
            mask = wire.Earlier(1, (1,))
            given |= {"memory_mask": mask, "memory_key_padding_mask": mask}
        return [self.encoding(inputs), self.planned(self.decoder, inputs, given)]

    def _probe_with(
        self, batched: bool, takes: str, floats: str, case: Case, problems: list[str | CallFailed]
    ) -> bool:
        """As for a stack; what ``encode`` returns is handed on whole, or as the first of a tuple."""
        stepping = self.route == "steps" and self.encoder is not None
        for self.path in ((), (0,)) if stepping else ((),):
            if super()._probe_with(batched, takes, floats, case, problems):
                return True
        return False

    def encoding(self, inputs: Inputs) -> Call:
        """The call of ``encode`` alone.  Raises OutOfDomain where there is none."""
        if self.encoder is None:
            raise OutOfDomain("it has no method encode(src)")
        return self.planned(self.encoder, inputs, {"src": self.tokens(inputs, "src")})

    def memories(self, cases: Sequence[Inputs]) -> list[np.ndarray]:
        """What ``encode`` returns for each source, (B, S, d)."""
        found = []
        if not self.batched:
            raise OutOfDomain("it takes single sequences")
        for raw, inputs in zip(self.send([self.encoding(i) for i in cases]), cases, strict=True):
            arrays = [self._turned(item.values) for _, item in leaves(raw) if item.values.dtype.kind == "f"]
            fitting = [a for a in arrays if a.ndim == 3 and a.shape[:-1] == inputs["src"].shape]
            if not fitting:
                raise WrongResult(
                    f"encode returned {kind_of(raw)}; expected a vector for each source position"
                )
            found.append(fitting[0].astype(np.float64))
        return found

    def _source(self, inputs: Inputs) -> dict[str, Any]:
        if self.whole:
            return {"src": self.tokens(inputs, "src")}
        return {"memory": self._vectors(inputs["src"], inputs.case)}  # no encode: each word has a vector


def _side(name: str) -> str:
    """``src`` or ``tgt``, as the name of a parameter tells; nothing where it tells neither or both."""
    found = [side for side, pattern in SIDES.items() if pattern.search(name.lower())]
    return found[0] if len(found) == 1 else ""


def _further(value: Any) -> Any:
    return replace(value, back=2) if isinstance(value, wire.Earlier) else value

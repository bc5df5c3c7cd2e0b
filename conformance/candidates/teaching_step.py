"""The subject for a training step, which is given a stand-in model."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

import numpy as np

from ..engine.cases import Case, Inputs, OutOfDomain, normal
from . import wire
from .errors import CallFailed
from .layers import says_sequence_first
from .names import plain
from .proxy import BACKWARD, ZERO_GRAD
from .session import Call
from .stand_in import BOS, ENDS, EOS, HEADS, PAD, PADS, STARTS, lacks
from .subject import Results
from .teaching import TeachingSubject
from .teaching_loss import numbers, weights
from .teaching_model import DECODING, ENCODING, Teacher

BY_ITSELF = re.compile(
    r"\b(without|no|not? includ\w+|excluding) (the |a )?(leading )?(bos|sos|start)\b"
    r"|\b(prepend\w*|puts?|adds?|inserts?) (the |a )?(bos|sos|start)\b",
    re.IGNORECASE,
)  # what is said of labels to which a step itself gives BOS
OF_ORDER = re.compile(r"(sequence|seq|time|length)[- ]?(first|major)", re.IGNORECASE)
PROBE = Case({"B": 3, "T": 5, "S": 4, "V": 12, "padding": "none", "pad": PAD, "seed": 2})
SHIFTED_ALREADY = frozenset("x xb inputs inputids idx inputtokens".split())  # beside y, targets or labels


@dataclass(frozen=True)
class Failure:
    """A call that failed in probing: how often it had asked the stand-in, and whether for an encoding."""

    error: CallFailed
    asked: int
    encoded: bool
    paired: bool


class TrainingStepSubject(TeachingSubject):
    """``target`` (B, T), ``src`` and ``memory`` in; ``loss``, and what a stand-in model was ``shown``, out."""

    told_by_answers = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.batch_form = "tuple"
        self.bos = BOS  # what sequences start with
        self.paired = False  # whether encoding answers with (memory, mask)
        self.speaks_of_order = False
        words = f"{self.words}\n{self.binding.entry.get('file_doc', '')}"
        if self.conventions.get("order", ("", ""))[1] == "default" and says_sequence_first(words):
            if says_sequence_first(OF_ORDER.sub("", words)):  # a shape says what is passed
                self.conventions["order"] = ("sequence_first", "by its author's words")
            else:  # words alone may be on the model
                self.speaks_of_order = True
        self.teacher: Teacher | None = None  # of the last call

    def prefetch(self, cases: Sequence[Inputs]) -> None:
        """Calls with a stand-in are answered one by one."""

    def probe(self) -> None:
        failures: list[Failure] = []
        answered, right = self._try_forms(failures)
        if answered and not right and self.speaks_of_order:
            self.conventions["order"] = ("sequence_first", "by its author's words")
            answered, right = self._try_forms([])
            if not right:
                self.conventions["order"] = ("batch_first", "default")
                answered, right = self._try_forms([])
        if not answered:
            self._say_why(failures)
            return
        self.framework = self.container if self.container != "list" else self.framework
        self.choose_layouts(answered, right)
        names = {"single": "(T,)", "batch": "(B, T)"}
        self.probed("layout", ", ".join(names[n] for n in sorted(self.limits["layout"])))
        self._probe_padding(PROBE)

    def _try_forms(self, failures: list[Failure]) -> tuple[list[str], list[str]]:
        """The layouts that are answered, and those shown rightly, in the first form of arguments that is taken."""
        forms = ("tuple", "dict") if "batch" in self.binding.arguments else ("tuple",)
        for paired, container, form in product((False, True), self.containers(), forms):
            if paired and not any(failure.encoded for failure in failures):
                break
            self.paired, self.container, self.batch_form = paired, container, form
            answered, right = self._try_layouts(failures)
            if answered:
                return answered, right
        self.paired = False
        return [], []

    def _try_layouts(self, failures: list[Failure]) -> tuple[list[str], list[str]]:
        answered, right = [], []
        for layout in ("batch", "single"):
            inputs = self.default(Inputs(PROBE.replaced(layout=layout), {}))
            try:
                results = self.run(inputs)
            except CallFailed as error:
                asked, encoded = (self.teacher.asked, self.teacher.encoded) if self.teacher else (0, False)
                failures.append(Failure(error, asked, encoded, self.paired))
                continue
            answered.append(layout)
            if self._puts_bos(inputs, results):
                inputs = self.default(Inputs(inputs.case, {}))
                try:
                    results = self.run(inputs)
                except CallFailed:
                    continue
            if any(np.array_equal(inputs["target"][:, :-1], shown) for shown in results["shown"]):
                right.append(layout)
        return answered, right

    def _say_why(self, failures: Sequence[Failure]) -> None:
        """Why no call succeeded: what it takes lies outside, the stand-in lacks something, or it is at fault."""
        source = self.binding.arguments.get("src")
        if source is not None and plain(source.name) in SHIFTED_ALREADY and self._showed_all():
            self.outside = "it takes inputs and labels, which are shifted before it is called"
            return
        furthest_first = sorted(failures, key=lambda failure: (-failure.asked, not failure.paired))
        told = [str(failure.error) for failure in furthest_first]
        lacking = next((text for text in told if "stand-in" in text or "NoneType" in text), "")
        if not lacking and failures and lacks(furthest_first[0].error, furthest_first[0].asked > 0):
            lacking = told[0]
        if lacking:
            self.outside = f"it cannot be called with a stand-in model: {lacking}"
        else:
            self.problem = f"no call succeeded; the first attempt: {told[0] if told else 'no result'}"

    def _puts_bos(self, inputs: Inputs, results: Results) -> bool:
        """Whether it takes labels and gives BOS to them itself, which its author must say; then it is so from now on.

        A step that feeds its target as it is, or that is given BOS and puts another in front, is none of these.
        """
        place = self.binding.arguments.get("target")
        if self.convention("target") == "labels":
            self._learn_bos(inputs, results)
            return True
        said = BY_ITSELF.search(self.words) or (place is not None and "label" in plain(place.name))
        target, shown = inputs["target"], results["shown"]
        how = self.conventions.get("target", ("", ""))[1]
        if not said or self.says_bos() or how == "declared" or len(shown) != 1:
            return False
        if shown[0].shape != target.shape or not np.array_equal(shown[0][:, 1:], target[:, :-1]):
            return False
        first = shown[0][:, 0]
        if (first != first[0]).any() or np.isin(first, target[:, 1:]).any():
            return False
        self.conventions["target"] = ("labels", "by its author's words")
        self._learn_bos(inputs, results)
        return True

    def _learn_bos(self, inputs: Inputs, results: Results) -> None:
        """The id that it puts in front of labels, where none is passed."""
        for shown in results["shown"][:1]:
            first = shown[:, 0] if shown.size else shown
            fixed = first.size and (first == first[0]).all()
            if fixed and not self.takes("bos_id") and not np.isin(first, inputs["target"][:, 1:]).any():
                self.bos = int(first[0])

    def with_convention(self, name: str, value: str) -> Self:
        other = super().with_convention(name, value)
        if name == "target" and value == "labels":
            layout = "batch" if "batch" in other.limits.get("layout", ()) else "single"
            inputs = other.default(Inputs(PROBE.replaced(layout=layout), {}))
            with contextlib.suppress(CallFailed, OutOfDomain):
                other._learn_bos(inputs, other.run(inputs))
        return other

    def _showed_all(self) -> bool:
        """Whether the model of the last call was given the whole target."""
        teacher = self.teacher
        return teacher is not None and any(np.array_equal(s, teacher.inputs["target"]) for s in teacher.shown)

    def _probe_padding(self, case: Case) -> None:
        """Without a padding id or a criterion: does it leave out one id by itself?"""
        if self.takes("pad_id"):
            return
        self.limits["pad"] = (PAD,)
        if "criterion" in self.binding.arguments or "batch" not in self.limits["layout"]:
            return
        inputs = self.default(Inputs(case.replaced(layout="batch", padding="end"), {}))
        other = inputs.replaced(table=inputs["table"] + 0.0)
        shown = inputs["target"]
        last = shown[1][shown[1] != PAD][-1]  # what stands before padding: its logits count nowhere else
        other["table"][last] = other["table"][last, ::-1] * 2.0 + 1.0
        first, second = self.run(inputs)["loss"], self.run(other)["loss"]
        if first is None or second is None or abs(first - second) > 1e-6:
            self.limits["padding"] = ("none",)

    def default(self, inputs: Inputs) -> Inputs:
        if "target" in inputs:
            return inputs
        case = inputs.case
        rng = case.rng
        B, T, S, V = 1 if case["layout"] == "single" else case["B"], case["T"], case["S"], case["V"]
        target = np.stack([5 + rng.permutation(V - 5)[:T] for _ in range(B)]).astype(np.int64)
        eos = self._eos(case)
        target[:, 0], target[:, -1] = self.bos, eos
        for b in range(1, B) if case["padding"] != "none" else ():
            n = max(2, T - b)
            target[b, n - 1], target[b, n:] = eos, case["pad"]
        return inputs.replaced(
            target=target,
            src=np.stack([5 + rng.permutation(V - 5)[:S] for _ in range(B)]).astype(np.int64),
            memory=normal(rng, (B, S, 4)),
            table=normal(rng, (V, V)),
        )

    def _eos(self, case: Mapping[str, Any]) -> int:
        return EOS if case["pad"] != EOS else EOS + 1

    @property
    def sequence_first(self) -> bool:
        return self.convention("order") == "sequence_first"

    def turned(self, values: np.ndarray) -> np.ndarray:
        """(B, T, …) as it is passed."""
        return np.ascontiguousarray(values.swapaxes(0, 1)) if self.sequence_first else values

    def run(self, inputs: Inputs) -> Results:
        if self.outside:
            raise OutOfDomain(self.outside)
        inputs = self.default(inputs)
        model = self.teacher = Teacher(self, inputs)
        call = self._call(inputs)
        self.last_calls = (call,)
        raw = self.session.call(call, model.answer)
        found = numbers(raw)
        loss = float(found[1].reshape(())) if found is not None and found[1].size == 1 else None
        labels = inputs["target"][:, 1:]
        padded = inputs.case["padding"] != "none"
        real = labels != inputs.case["pad"] if padded else np.ones(labels.shape, dtype=bool)
        return {
            "loss": loss,
            "shown": model.shown,
            "decodings": model.decodings,
            "sources": model.sources,
            "events": model.events,
            "by_hand": "grad" in self.binding.entry.get("asked_for", ()),
            "passed": self._sources(),
            "real": real,
            "weights": weights(real, self.convention("reduction"), "batch"),
        }

    def _sources(self) -> tuple[str, ...]:
        """What is passed of a source: its tokens, or what was encoded."""
        bound = self.binding.arguments
        return ("src",) if "batch" in bound else tuple(name for name in ("memory", "src") if name in bound)

    def _call(self, inputs: Inputs) -> Call:
        bound = self.binding.arguments
        case = inputs.case
        attributes: dict[str, Any] = {"vocab_size": case["V"]}
        for value, names in ((case["pad"], PADS), (self.bos, STARTS), (self._eos(case), ENDS)):
            attributes |= dict.fromkeys(names, value)
        attributes["config"] = dict(attributes)
        model = wire.Remote("model", (*DECODING, *ENCODING, *HEADS, BACKWARD, ZERO_GRAD), attributes)
        given: dict[str, Any] = {"model": model}
        single = case["layout"] == "single"
        passed = {name: inputs[name] for name in ("target", "src", "memory")}
        if self.convention("target") == "labels":
            passed["target"] = passed["target"][:, 1:]
        held = {
            name: self.held(np.array(values[0] if single else self.turned(values)))
            for name, values in passed.items()
        }
        given |= {name: value for name, value in held.items() if name in bound}
        if "batch" in bound:
            names = {
                "src": ("src", "source", "input_ids", "encoder_input"),
                "target": ("tgt", "trg", "target", "labels"),
            }
            table = {name: held[kind] for kind, spelt in names.items() for name in spelt}
            given["batch"] = table if self.batch_form == "dict" else (held["src"], held["target"])
        for name, methods in (
            ("optimizer", (ZERO_GRAD, "step")),
            ("scheduler", ("step",)),
            ("criterion", ("forward", BACKWARD)),
        ):
            if name in bound and (not bound[name].has_default or name == case.get("given")):
                given[name] = wire.Remote(name, methods)
        for name, value in (
            ("pad_id", inputs.case["pad"]),
            ("bos_id", self.bos),
            ("eos_id", self._eos(case)),
            ("vocab_size", inputs.case["V"]),
        ):
            if name in bound:
                given[name] = value
        if "device" in bound and not bound["device"].has_default:
            given["device"] = "cpu"
        return self.make_call(inputs.case, given, grad=self.container == "torch")

    def prelude(self, call: Call) -> list[str]:
        """A small model that answers as the stand-in did, for the snippet."""
        teacher = self.teacher
        if teacher is None or teacher.place is None:
            return []
        method, place = teacher.place
        V = teacher.inputs.case["V"]
        array, zeros = (
            ("torch.tensor", "torch.zeros") if self.framework == "torch" else ("np.array", "np.zeros")
        )
        double = "dtype=torch.float64" if self.framework == "torch" else "dtype=np.float64"
        used = sorted({int(token) % V for shown in teacher.shown for token in shown.ravel()})
        name = "__call__" if method == "forward" else method
        ids = f"named[{place!r}]" if isinstance(place, str) else f"args[{place}]"
        lines = [
            "class Model:",
            f"    table = {zeros}(({V}, {V}), {double})  # the logits after each token",
            *(f"    table[{t}] = {array}({teacher.inputs['table'][t].tolist()}, {double})" for t in used),
            *(["    table.requires_grad_()"] if self.framework == "torch" else []),
            "",
            f"    def {name}(self, *args, **named):",
            f"        print('shown:', {ids})",
            f"        return self.table[{ids}]",
            "",
            "    def __getattr__(self, name):  # encode, generator, train, step: what came in comes out",
            "        return lambda *args, **named: args[0] if args else []",
            "",
            "model = optimizer = scheduler = Model()",
        ]
        if "criterion" in self.binding.arguments:
            pad = teacher.inputs.case["pad"]
            lines.append(f"criterion = torch.nn.CrossEntropyLoss(ignore_index={pad})")
        return [*lines, ""]

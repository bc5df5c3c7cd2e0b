"""The stand-in model of a training step: its answers, and the log of what it was shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.cases import Inputs
from . import stand_in, wire
from .masks import as_array
from .proxy import BACKWARD, ZERO_GRAD
from .stand_in import HEADS
from .teaching_loss import cross_entropies, log_softmax

if TYPE_CHECKING:
    from .teaching_step import TrainingStepSubject

DECODING = ("forward", "decode", "decoder", "decode_step", "decode_train", "run_decoder")
ENCODING = (*stand_in.ENCODING, "run_encoder")


class Teacher:
    """The checker's end of the stand-in model: answers with a table of logits, and keeps what it was shown.

    The logits at a position depend on the token there alone, so that one pass and many steps agree.
    """

    def __init__(self, subject: TrainingStepSubject, inputs: Inputs) -> None:
        self.subject, self.inputs = subject, inputs
        self.shown: list[np.ndarray] = []  # (B, n) of each decoding
        self.place: tuple[str, str | int] | None = None  # the method that decodes, where it gets the tokens
        self.decodings = 0
        self.asked = 0  # how often the model was called, for whatever
        self.encoded = False
        self.sources: list[np.ndarray] = []  # memories and sources that the model was given
        self.events: list[str] = []  # zero_grad, backward and step, as they came

    def answer(self, name: str, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        arrays = [array for item in (*args, *kwargs.values()) if (array := _array(item)) is not None]
        if method in (BACKWARD, ZERO_GRAD) or name == "optimizer":
            self.events.append(method.removeprefix("_"))
            return None
        if name == "criterion":
            return self._criterion(arrays)
        if name != "model":
            return None
        self.asked += 1
        if method in HEADS:
            return arrays[0]
        if method in ENCODING:
            self.sources += [array.values for array in arrays]
            self.encoded = True
            memory = self.inputs["memory"]
            single = arrays and arrays[0].values.ndim == 1
            memory = memory[0] if single else self.subject.turned(memory)
            answer = wire.Array(memory, "float64", self._container(arrays))
            seen = np.ones((len(self.inputs["src"]), 1, 1, self.inputs["src"].shape[1]), dtype=bool)
            return (answer, wire.Array(seen, "bool", answer.container)) if self.subject.paired else answer
        shown = self._decode(arrays, method)
        places = [*enumerate(args), *kwargs.items()]
        self.place = (method, next((p for p, item in places if _holds(item, shown)), 0))
        return self._logits(arrays, shown)

    def _decode(self, arrays: Sequence[wire.Array], method: str) -> np.ndarray:
        src = self.inputs["src"]
        ids = [a.values for a in arrays if a.values.dtype.kind in "iu" and a.values.ndim in (0, 1, 2)]
        tokens = [a for a in ids if not _same(a, src)]
        real = [
            a for a in tokens if not (a.size and a.max() <= 1 and a.ndim == 2)
        ]  # the others look like masks
        tokens = real or sorted(tokens, key=lambda a: 1 not in a.shape)  # as BOS alone does
        self.sources += [a.values for a in arrays if not any(a.values is t for t in tokens)]
        if not tokens and len(ids) > (1 if method == "forward" else 0):
            tokens = ids[-1:]  # the source in the target's place
        if not tokens:
            raise LookupError("the stand-in model was given no token ids to decode")
        shown = tokens[0]
        self.decodings += 1
        self.shown.append(self._canonical(shown))
        return shown

    def _logits(self, arrays: Sequence[wire.Array], shown: np.ndarray) -> wire.Array:
        logits = self.inputs["table"][shown % self.inputs.case["V"]]
        if self.subject.convention("logits") == "log_probs":
            logits = log_softmax(logits)
        return wire.Array(logits, "float64", self._container(arrays))

    def _canonical(self, shown: np.ndarray) -> np.ndarray:
        """(B, n), also where the sequence comes first."""
        expected = self.inputs["target"][:, :-1]
        rows = shown.reshape(1, -1) if shown.ndim < 2 else shown
        if self.subject.sequence_first and shown.ndim == 2:
            return rows.T
        turned = rows.shape == expected.T.shape and np.array_equal(rows.T, expected)
        return rows.T if turned else rows

    def _criterion(self, arrays: Sequence[wire.Array]) -> wire.Array:
        logits, labels = arrays[0].values, arrays[1].values
        if logits.ndim == 3 and labels.ndim == 2 and logits.shape[2] == labels.shape[1] != logits.shape[1]:
            logits = logits.swapaxes(1, 2)
        if logits.shape[:-1] != labels.shape:
            raise ValueError(f"logits of shape {logits.shape} do not go with labels of shape {labels.shape}")
        real = labels != self.inputs.case["pad"]
        losses = cross_entropies(logits, labels, real)
        loss = np.asarray(losses.sum() / max(1, real.sum()))
        return wire.Array(loss, "float64", self._container(arrays))

    def _container(self, arrays: Sequence[wire.Array]) -> str:
        """What holds the answer: what held the question; lists are answered with arrays."""
        held = next((a.container for a in arrays), self.subject.container)
        return "numpy" if held == "list" else held


def _array(value: Any) -> wire.Array | None:
    if isinstance(value, wire.Array):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return wire.Array(np.asarray(value), "int64", "numpy")
    found = as_array(value)
    return None if found is None else wire.Array(found[0], found[0].dtype.name, "list")


def _holds(value: Any, tokens: np.ndarray) -> bool:
    array = _array(value)
    return array is not None and np.array_equal(array.values, tokens)


def _same(left: np.ndarray, right: np.ndarray) -> bool:
    return any(np.array_equal(left.squeeze(), other.squeeze()) for other in (right, right.T))

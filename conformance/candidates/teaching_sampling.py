"""The subject for scheduled sampling: draws between the teacher's token and the model's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from ..engine.cases import Inputs, OutOfDomain
from . import wire
from .errors import CallFailed
from .masks import as_array
from .names import plain
from .session import Call
from .subject import Results, WrongResult, kind_of
from .teaching import TeachingSubject
from .teaching_model import DECODING

SEQUENCE = re.compile(
    r"\bper[- ]token|\b(?:each|every) (?:token|position|place)|\bindependent|\bown (?:draw|coin|decision)"
    r"|[\[(`]\s*(?:B|N|batch\w*)\s*,\s*(?:T|L|S)|[\[(`]\s*(?:T|L|S|seq_len)\s*,?\s*[\])`]",
    re.IGNORECASE,
)
PER_CALL = re.compile(
    r"whole (?:sequence|call|batch)|one (?:coin|draw|decision)|entire (?:sequence|batch)|single (?:coin|draw|decision)",
    re.IGNORECASE,
)
CHANCE = r"(?:prob\w*|chance|rate|ratio|fraction)\b[^.\n]{0,40}\b"
OF_TEACHER = re.compile(
    CHANCE + r"(?:teacher|gold|ground[- ]truth|true token|correct|forcing)", re.IGNORECASE
)
OF_MODEL = re.compile(
    CHANCE + r"(?:model|predict\w*|sampl\w*|generated|own(?! (?:draw|coin|decision)))", re.IGNORECASE
)
NEUTRAL = frozenset("prob p probability ratio rate threshold mixprob mixingprob tau eps epsilon".split())
GOLD, MODEL, VOCABULARY = 1, 21, 48


class ScheduledSubject(TeachingSubject):
    """``model`` (calls, B, T) out: 1 where the model's token came back, 0 for the teacher's, -1 for neither.

    ``coins`` are those of them that are drawn by themselves: all, or the first of a row or of a call.
    """

    SHAPES: Mapping[str, tuple[tuple[int, ...], int]] = {  # shape of the tokens, number of calls
        "matrix": ((8, 12), 19),
        "vector": ((16,), 84),
        "one": ((1,), 400),
        "one_by_one": ((1, 1), 400),
        "number": ((), 400),
    }

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.form = "number"
        self.first = "drawn"  # or kept (the first stays BOS), or shifted (predictions are for the next place)
        self.named_by_parameter("probability_of", "probability")
        value, how = self.conventions.get("probability_of", ("", "declared"))
        said = (bool(OF_MODEL.search(self.words)), bool(OF_TEACHER.search(self.words)))
        place = self.binding.arguments.get("probability") or self.binding.constructor.get("probability")
        if (
            how != "declared"
            and value == "model"
            and said == (False, True)
            and place
            and plain(place.name) in NEUTRAL
        ):
            self.conventions["probability_of"] = ("teacher", "by its words")

    @property
    def asks(self) -> bool:
        """Whether it asks a decoder for the prediction itself."""
        return "predicted" not in self.binding.arguments and "logits" not in self.binding.arguments

    def prefetch(self, cases: Sequence[Inputs]) -> None:
        """A case is a frame of many calls already."""

    def probe(self) -> None:
        if not self.takes("probability") or (self.asks and "decoder" not in self.binding.arguments):
            missing = "the probability" if not self.takes("probability") else "the model's token"
            self.outside = f"it has no parameter for {missing}"
            return
        problems: list[str] = []
        usable: dict[tuple[str, str], bool] = {}
        for container, form in product(self.containers(), self.SHAPES):
            if container == "list" and form in ("number", "one_by_one"):
                continue
            if any(known != container for known, _ in usable):
                break  # what one kind of container serves, another need not
            self.container, self.form = container, form
            try:
                frames = [self._answers(percent, 6, 11) for percent in (0, 100, 50)]
            except CallFailed as error:
                problems.append(str(error))
                continue
            usable[container, form] = any(_mixes(part) for part in frames[2])
            if usable[container, form] and (form != "matrix" or self.says_batch() or _mixes_rows(frames[2])):
                break
        if not usable:
            self.problem = f"no call succeeded; the first attempt: {problems[0] if problems else 'no result'}"
            return
        self._settle(usable)

    def _settle(self, usable: Mapping[tuple[str, str], bool]) -> None:
        """The form to judge: the one that mixes within a call; one token a call where none does."""
        mixing = [key for key, mixed in usable.items() if mixed]
        whole = [key for key in usable if key[1] in ("matrix", "vector")]
        single = [key for key in usable if key[1] not in ("matrix", "vector")]
        sequences = self.says_sequence() and not PER_CALL.search(self.words)
        if mixing:
            self.container, self.form = mixing[-1]
        elif whole and (sequences or not single or self.convention("coin") != "token"):
            self.container, self.form = whole[0]
        else:
            self.container, self.form = (single or whole)[0]
        self.framework = self.container if self.container != "list" else self.framework
        self._place_first()
        shown = {"matrix": "tokens (B, T)", "vector": "tokens (T,)"}.get(self.form, "one token a call")
        self.probed("form", shown)
        if self.first != "drawn":
            self.probed(
                "first",
                {"kept": "always the teacher's", "shifted": "predictions are for the next place"}[self.first],
            )

    def says_sequence(self) -> bool:
        names = " ".join([self.binding.name, *(p.name for p in self.binding.arguments.values())])
        return bool(SEQUENCE.search(self.words)) or bool(
            re.search(r"(?:\b|_)seq(?:s|uences?)?(?:_|\b)", names)
        )

    def _place_first(self) -> None:
        """Whether the first token always stays, and whether predictions move on by one place."""
        shape, _ = self.SHAPES[self.form]
        if len(shape) == 0 or shape[-1] < 2:
            return
        for percent in (100, 0):
            for first in ("drawn", "kept", "shifted"):
                self.first = first
                try:
                    if (self._answers(percent, 2, 12) == 1).all():
                        return
                except CallFailed:
                    continue
        self.first = "drawn"

    def run(self, inputs: Inputs) -> Results:
        if self.outside:
            raise OutOfDomain(self.outside)
        coin, (_, count) = self.convention("coin"), self.SHAPES[self.form]
        count = {"row": 80, "call": 400}.get(coin, count)
        if inputs.case["percent"] in (0, 100):
            count = min(count, 80)  # one token of the other kind is enough
        count = min(count, 330) if self.asks else count
        model = self._answers(inputs.case["percent"], count, inputs.case["seed"])
        return {"model": model, "coins": {"row": model[:, :, :1], "call": model[:, :1, :1]}.get(coin, model)}

    def calls_for(self, inputs: Inputs) -> list[Call]:
        return self._calls(inputs.case["percent"], 1, inputs.case["seed"])

    def _calls(self, percent: int, count: int, seed: int) -> list[Call]:
        shape, _ = self.SHAPES[self.form]
        mine = percent if self.convention("probability_of") == "model" else 100 - percent
        case = {"percent": mine}
        gold, predicted = tokens_of(shape)
        bound = self.binding.arguments
        given: dict[str, Any] = {"gold": self._ids(gold)}
        if "probability" in bound:
            given["probability"] = mine / 100
        if "predicted" in bound:
            given["predicted"] = self._ids(predicted)
        if "logits" in bound:
            given["logits"] = self.held(10.0 * np.eye(VOCABULARY)[predicted])
        if "decoder" in bound:
            given["decoder"] = wire.Remote("decoder", DECODING)
        if "previous" in bound:
            given["previous"] = self._ids(gold - gold)
        if "memory" in bound:
            given["memory"] = self.held(np.zeros((3, 4)))
        calls = []
        for n, own in enumerate(np.random.default_rng(seed).integers(1 << 31, size=count).tolist()):
            random = {
                "seed": own,
                "rng": wire.Random(own, "numpy" if self.container == "list" else self.container),
            }
            needed = {k: v for k, v in random.items() if k in bound and not bound[k].has_default}
            calls.append(self.make_call(case, {**given, **needed}, seed=seed if n == 0 else None))
        return calls

    def prelude(self, call: Call) -> list[str]:
        """A decoder for the snippet: it always predicts the same token."""
        if "decoder" not in self.binding.arguments:
            return []
        logits = f"10.0 * np.eye({VOCABULARY})[{MODEL}]"
        answer = f"torch.tensor({logits})" if self.framework == "torch" else logits
        return [
            "import numpy as np",
            "",
            "def decoder(*args, **named):",
            f"    return {answer}  # token {MODEL}",
            "",
        ]

    def _ids(self, values: np.ndarray) -> Any:
        return int(values) if self.form == "number" else self.held(values.astype(np.int64))

    def _answers(self, percent: int, count: int, seed: int) -> np.ndarray:
        """(count, B, T): 1 model, 0 teacher, -1 neither.  Raises CallFailed."""
        shape, _ = self.SHAPES[self.form]
        calls = self._calls(percent, count, seed)
        self.last_calls = tuple(calls[:1])
        raw = self.session.calls(calls, self._decode)
        failed = next((item for item in raw if isinstance(item, CallFailed)), None)
        if failed is not None:
            raise failed
        gold, predicted = (np.atleast_2d(values) for values in tokens_of(shape))
        found = np.stack([_mixed(item, gold.shape) for item in raw])
        if self.first == "shifted":
            predicted = np.concatenate([gold[:, :1], predicted[:, :-1]], axis=1)
        verdict = np.where(found == gold, 0, np.where(found == predicted, 1, -1))
        return verdict if self.first == "drawn" else verdict[:, :, 1:]

    def _decode(self, name: str, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        shape, _ = self.SHAPES[self.form]
        _, predicted = tokens_of(shape)
        return wire.Array(
            10.0 * np.eye(VOCABULARY)[predicted],
            "float64",
            "numpy" if self.container == "list" else self.container,
        )


def _mixes(drawn: np.ndarray) -> bool:
    """Whether one call, (B, T), took some tokens from the teacher and some not, apart from the first of a row."""
    later = drawn[:, 1:]
    return bool(later.size) and 0 < (later == 0).mean() < 1


def _mixes_rows(drawn: np.ndarray) -> bool:
    """Whether tokens of one row, (calls, B, T), are from both sides: otherwise a sequence may be what it takes."""
    later = drawn[:, :, 1:] == 0
    return bool((later != later[:, :, :1]).any())


def tokens_of(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The teacher's tokens and the model's: different at every place of a row."""
    places = np.broadcast_to(np.arange(shape[-1] if shape else 1), shape or (1,)).reshape(shape)
    return GOLD + places, MODEL + places


def _mixed(raw: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The tokens within an answer, (B, T).  Raises WrongResult."""
    items = [raw] if not isinstance(raw, tuple) else list(raw)
    if isinstance(raw, Mapping):
        items = list(raw.values())
    for item in items:
        if isinstance(item, int | float) and not isinstance(item, bool):
            item = wire.Array(np.asarray(item), "int64", "list")
        array = (item.values,) if isinstance(item, wire.Array) else as_array(item)
        if array is not None and array[0].dtype != bool and array[0].size == shape[0] * shape[1]:
            return array[0].reshape(shape)
    raise WrongResult(f"it returned {kind_of(raw)}; expected {shape[0] * shape[1]} token(s)")

"""Subjects for sampling: from logits to a distribution, to a token drawn from it, to the likeliest token.

Canonical inputs: ``logits`` (B, V), ``temperature``, ``top_k`` and ``top_p`` (None where switched off), and
``order``, the order in which the three act.  ``ties`` and ``zero`` say what holds for equal logits and for a
temperature of 0.  A candidate gets them in the layout, container and spelling that it takes.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import count, pairwise
from typing import Any

import numpy as np

from ..engine.cases import Inputs, as_dtype
from . import wire
from .errors import CallFailed
from .sampling_answers import FORMS, form_of, other_form, per_token, probabilities, tokens, vector
from .sampling_cases import DEFAULT_ORDER, SETTINGS, likely, logits_of, settings_of, softmax
from .session import Built, Call
from .subject import Results, Subject, WrongResult, arrange, kind_of

SOURCES = ("logits", "probs", "log_probs")
LAYOUTS = ("(B, V)", "(V,)", "(1, V)", "(B, 1, V)")
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "temperature": (None, 1),
    "top_k": (None, 0, -1),
    "top_p": (None, 1, 0),
}  # defaults that switch a setting off
BATCH_DRAWS, SINGLE_DRAWS = 2000, 300
_VOCABULARY = r"(?:v|c|vocab(?:ulary)?(?:_?size)?|n_?vocab)\b"
_ROWS = r"(?:b|n|bs|bsz|n?_?batch(?:_?size)?|…|\.\.\.|\*\w*)"
BATCH = rf"[\[(]\s*{_ROWS}\s*,\s*{_VOCABULARY}\s*[\])]"  # (B, V), [batch, vocab], (..., V), (*, V)
ONE_ROW = rf"[\[(]\s*{_VOCABULARY}\s*,?\s*[\])]"  # (V,)
EITHER = (
    rf"{BATCH}\W{{0,3}}(?:or|and|/|\|)\W{{0,3}}{ONE_ROW}|{ONE_ROW}\W{{0,3}}(?:or|and|/|\|)\W{{0,3}}{BATCH}"
)
LAST_AXIS = r"\b(?:last|final) (?:axis|dim(?:ension)?)\b"


def expressed(logits: np.ndarray, source: str) -> np.ndarray:
    """Logits as what a candidate takes: themselves, or their probabilities, or the logarithms of these."""
    if source == "logits":
        return logits
    values = softmax(logits.astype(np.float64))
    with np.errstate(divide="ignore"):
        return (values if source == "probs" else np.log(values)).astype(logits.dtype)


class SamplingSubject(Subject, ABC):
    """What the three roles share: how logits and settings are passed."""

    TRIED: Mapping[str, Any] = {"temperature": 2.0, "top_k": 2, "top_p": 0.6}  # in probing, one at a time
    REPEATED = 1

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.layout = LAYOUTS[0]
        self.single = False  # takes one row as (V,) too
        self.form = ""
        self.keeps_batch = False  # a batch of one row has to come back as one, by its author's words
        self._seeds = count()

    def has(self, need: str) -> bool:
        if need == "batches":
            return self.layout in ("(B, V)", "(B, 1, V)")
        if need.startswith("argument "):
            return self._place(need.removeprefix("argument ")) is not None
        return super().has(need)

    def _place(self, name: str) -> Any:
        return self.binding.arguments.get(name) or self.binding.constructor.get(name)

    def default(self, inputs: Inputs) -> Inputs:
        case = inputs.case
        if "order" in inputs or "V" not in case or "B" not in case:
            return inputs
        logits = as_dtype(logits_of(case), case.get("dtype", "float64"))
        settings = settings_of(case)
        return Inputs(case, {"logits": logits, **settings, **self.rules(), "neutral": self.neutral(settings)})

    def neutral(self, settings: Mapping[str, Any]) -> str:
        """What is passed for settings that are off, in words."""
        words = {"temperature": "temperature 1", "top_k": "top_k V", "top_p": "top_p 1"}
        passed = [n for n in SETTINGS if settings[n] is None and not self._is_off(n)]
        return ", ".join(words[name] for name in passed)

    def rules(self) -> dict[str, Any]:
        """What the candidate's conventions say about the result."""
        order = self.convention("order") or DEFAULT_ORDER
        return {"order": order, "ties": self.convention("ties"), "zero": self.convention("zero_temperature")}

    def calls_for(self, inputs: Inputs) -> list[Call]:
        return [self.one_call(rows, inputs) for rows in self.split(inputs["logits"])]

    def run_returning_inputs(self, inputs: Inputs) -> list[tuple[Any, Any]]:
        return super().run_returning_inputs(self.default(inputs))

    def split(self, logits: np.ndarray) -> list[np.ndarray]:
        """The rows in the pieces that are passed at a time."""
        if self.layout == "(B, V)":
            return [logits[0] if len(logits) == 1 and self.single else logits]
        if self.layout == "(B, 1, V)":
            return [logits[:, None]]
        return [row if self.layout == "(V,)" else row[None] for row in logits]

    def one_call(self, rows: np.ndarray, inputs: Mapping[str, Any]) -> Call:
        V, bound = rows.shape[-1], self.binding.arguments
        source = next(name for name in SOURCES if name in bound)
        values: dict[str, Any] = {
            source: self.array(expressed(rows, source)),
            "do_sample": True,
            "greedy": False,
        }
        for name, widest in (("temperature", 1.0), ("top_k", V), ("top_p", 1.0)):
            value = inputs.get(name)
            if value is not None or not self._is_off(name):
                values[name] = widest if value is None else value
        if self._needs("generator"):
            values["generator"] = wire.Random(next(self._seeds), self.framework)
        if self._needs("input_ids"):
            values["input_ids"] = self.array(np.zeros((max(1, rows.size // V), 1), dtype=np.int64))
        built = {name: value for name, value in values.items() if name not in bound}
        return self.make_call({"V": V, **built}, {n: v for n, v in values.items() if n in bound})

    def built(self, case: Mapping[str, Any], double: bool = False) -> Built:
        """The object with the settings that its constructor takes, which are part of the case."""
        known = self.binding.constructor
        given = {name: case[name] for name in known if name in case}
        for argument in self.role.constructor:
            place = known.get(argument.name)
            if place is not None and argument.name not in given and not place.has_default:
                given[argument.name] = self._constant(argument, case)
        args, kwargs = arrange(known, given)
        return Built(self.binding.path, args, kwargs, double, self.owner)

    def _needs(self, name: str) -> bool:
        """Whether a parameter must be given, in the call or else in the constructor."""
        place = self._place(name)
        return place is not None and not place.has_default

    def _is_off(self, name: str) -> bool:
        """Whether a setting is switched off by not being passed."""
        place = self._place(name)
        if place is None:
            return True
        bound, init = self.binding.arguments, self.binding.entry.get("init") or []
        own = self.binding.parameters if name in bound else init
        default = next((p["default"] for p in own if p["name"] == place.name), None)
        known = isinstance(default, int | float | None) and not isinstance(default, bool)
        return place.has_default and known and default in NEUTRAL[name]

    # probing

    def probe(self) -> None:
        for argument in self.role.arguments:
            if argument.name in SETTINGS and self._place(argument.name) is None:
                self.limits[argument.name] = ("off",)
        logits = np.array([[0.9, -1.4, 2.1, 0.2, -0.6], [-0.3, 1.7, -1.1, 0.4, 2.6]])
        off: dict[str, Any] = dict.fromkeys(SETTINGS)
        own_tries = [{**off, name: v} for name, v in self.TRIED.items() if self._place(name) is not None]
        tries = [off, *own_tries * self.REPEATED]
        problems: list[str] = []
        batch = self._says_batch()
        best: tuple[int, str, str, str] | None = None
        own = self.binding.entry["frameworks"]
        for framework in dict.fromkeys([*own, self._default_framework(), "numpy", "list", "torch"]):
            self.framework = framework
            scores: dict[str, tuple[int, str]] = {}
            for layout in LAYOUTS:
                self.layout = layout
                score, form = self.score(logits, tries, problems)
                if score >= 0:
                    scores[layout] = (score, form)
                if best is None and score == len(tries) and layout != "(B, V)":
                    break
            if not scores:
                continue
            top = max(score for score, _ in scores.values())
            layout = next(name for name, (score, _) in scores.items() if score == top)
            score, form = scores[layout]
            if layout != "(B, V)" and (batch == "shape" or (batch and "(B, V)" in scores)):
                layout = "(B, V)"  # it is held to what its author says of it
                score, form = scores.get(layout, (-1, form))
            if best is None or top > best[0]:
                best = (top, framework, layout, form)
                self.single = layout == "(B, V)" and scores.get("(V,)", (-1, ""))[0] >= score >= 0
            if top == len(tries) or framework in own:
                break
        if best is None:
            self.problem = f"no call succeeded; the first attempt: {problems[0] if problems else 'no result'}"
            return
        _, self.framework, self.layout, self.form = best
        if batch == "shape" and self.layout == "(B, V)" and self._drops_batch(logits, off):
            self.keeps_batch, self.single = True, False
        if not self.has("batches"):
            self.limits["B"] = (1,)
        self.probed("layout", "(B, V), (V,)" if self.single else self.layout)
        self.probed("result", self.form)
        self.probe_more()

    def probe_more(self) -> None:
        """Further conventions of a role."""

    @abstractmethod
    def score(
        self, logits: np.ndarray, tries: Sequence[Mapping[str, Any]], problems: list[str]
    ) -> tuple[int, str]:
        """How many of the tries come out right in the layout that is set (-1: none ran), and the form."""

    def attempt(
        self, logits: np.ndarray, tries: Sequence[Mapping[str, Any]], problems: list[str]
    ) -> list[list[Any] | None]:
        """The answers of each try, None where one of its calls failed."""
        calls, stops = [], [0]
        for settings in tries:
            calls += [self.one_call(rows, settings) for rows in self.split(logits)]
            stops.append(len(calls))
        answers = self.session.calls(calls)
        problems += [str(answer) for answer in answers if isinstance(answer, CallFailed)]
        parts = [answers[start:stop] for start, stop in pairwise(stops)]
        return [None if any(isinstance(a, CallFailed) for a in part) else part for part in parts]

    def _drops_batch(self, logits: np.ndarray, settings: Mapping[str, Any]) -> bool:
        """Whether a batch of one row comes back as a row alone."""
        call = self.one_call(logits[:1], settings)
        answer = self.session.calls([call])[0]
        return not isinstance(answer, CallFailed) and self._without_batch(answer, logits.shape[-1])

    @abstractmethod
    def _without_batch(self, answer: Any, V: int) -> bool:
        """Whether an answer has no batch axis."""

    def _checked(self, answers: Sequence[Any], inputs: Inputs) -> None:
        """A batch of one row comes back with its axis, where that is owed.  Raises WrongResult."""
        if self.keeps_batch and len(inputs["logits"]) == 1:
            for answer in answers:
                if self._without_batch(answer, inputs["logits"].shape[-1]):
                    raise WrongResult(
                        f"it returned {kind_of(answer)} for a batch of one row; expected a batch of one"
                    )

    def _says_batch(self) -> str:
        """Whether docstring or comments give logits a batch axis: by its ``shape``, by the ``axis``, or not at all.

        Where they give the shape of a single row too, it must be as another choice, to count for what does not run.
        """
        words = str(self.binding.entry.get("doc", ""))
        alone = re.search(ONE_ROW, words, re.IGNORECASE)
        either = re.search(EITHER, words, re.IGNORECASE) or not alone
        if re.search(BATCH, words, re.IGNORECASE):
            return "shape" if either and not re.search(r"\b(?:B|N|batch\w*)\s*==?\s*1\b", words) else "axis"
        return "axis" if re.search(LAST_AXIS, words, re.IGNORECASE) and not alone else ""


class DistributionSubject(SamplingSubject):
    """Results: ``probabilities`` (B, V) float64; filtered logits and log-probabilities are turned into them."""

    told_by_answers = True

    def score(
        self, logits: np.ndarray, tries: Sequence[Mapping[str, Any]], problems: list[str]
    ) -> tuple[int, str]:
        parts = self.attempt(logits, tries, problems)
        first = next((part for part in parts if part is not None), None)
        if first is None:
            return -1, ""
        try:
            form = form_of(per_token(first, logits.shape, fill=None))
        except WrongResult as error:
            problems.append(str(error))
            other = other_form(first)
            return (0, other) if other else (-1, "")
        right = 0
        for part, settings in zip(parts, tries, strict=True):
            if part is None:
                continue
            try:
                found = probabilities(part, logits.shape, form)
            except WrongResult:
                continue
            right += bool(np.allclose(found, likely(logits, settings), atol=1e-4))
        return right, form

    def probe_more(self) -> None:
        if self.form not in FORMS:
            self.limits["V"] = ()  # something else under a name of this role: it is shown, and not judged
            return
        if self.has("argument top_k"):
            logits = np.array([[1.0, 2.0, 1.0, 0.0, 1.0]])
            part = self.attempt(logits, [dict.fromkeys(SETTINGS) | {"top_k": 2}], [])[0]
            if part is None:
                return
            try:
                found = probabilities(part, logits.shape, self.form)
            except WrongResult:
                return
            kept = int((found > 1e-6).sum())
            if kept in (2, 4):
                self.probed("ties", "exactly_k" if kept == 2 else "all_equal")

    def _without_batch(self, answer: Any, V: int) -> bool:
        found = vector(answer, V, None)
        return found is not None and found.shape == (V,) and not isinstance(answer, dict)

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        self._checked(answers, inputs)
        return {"probabilities": probabilities(answers, inputs["logits"].shape, self.form)}


class TokenSubject(SamplingSubject):
    """Results: ``tokens`` (draws, B); or ``probabilities`` of a function that returns the distribution itself."""

    told_by_answers = True
    answers_by_chance = True

    def gist(self, inputs: Inputs, results: Results) -> Mapping[str, Any]:
        """How often each token was drawn, in each row."""
        if "tokens" not in results:
            return super().gist(inputs, results)
        drawn, V = results["tokens"], inputs["logits"].shape[-1]
        return {"frequencies": np.stack([(drawn == token).mean(axis=0) for token in range(V)], axis=-1)}

    def closeness(self, inputs: Inputs) -> float:
        """By chance two frequencies of one probability differ by more once in a hundred thousand."""
        return 3.2 / max(1, inputs.get("draws", SINGLE_DRAWS)) ** 0.5

    TRIED: Mapping[str, Any] = {"temperature": 0.05, "top_k": 1, "top_p": 0.01}  # each leaves one token
    REPEATED = 6  # so that no layout looks right by luck

    def probe_more(self) -> None:
        self.costly = not self.has("batches") and self.form == "a token"

    def draws(self, rows: int) -> int:
        """How often each row is drawn from."""
        return BATCH_DRAWS // rows if self.has("batches") else SINGLE_DRAWS

    def default(self, inputs: Inputs) -> Inputs:
        whole = super().default(inputs)
        if "draws" in whole or "order" not in whole:
            return whole
        return whole.replaced(draws=inputs.case.get("draws", self.draws(len(whole["logits"]))))

    def score(
        self, logits: np.ndarray, tries: Sequence[Mapping[str, Any]], problems: list[str]
    ) -> tuple[int, str]:
        """Right is a token within the vocabulary for each row, and the likeliest where no other is left."""
        parts = self.attempt(logits, tries, problems)
        right = 0
        for part, settings in zip(parts, tries, strict=True):
            if part is None:
                continue
            try:
                ids = tokens(part, len(logits))
            except WrongResult as error:
                problems.append(str(error))
                continue
            one_left = any(value is not None for value in settings.values())
            known = (ids >= 0) & (ids < logits.shape[1])
            right += bool((ids == logits.argmax(axis=1) if one_left else known).all())
        first = next((part for part in parts if part is not None), None)
        if first is not None and not right and _is_distribution(first, logits.shape):
            return len(tries), "the distribution"
        return (right, "a token") if right else (-1, "")

    def calls_for(self, inputs: Inputs) -> list[Call]:
        logits, draws = inputs["logits"], inputs.get("draws", 1)
        if self.form == "the distribution":
            draws = 1
        if self.has("batches") and not inputs.get("apart"):
            return [self.one_call(rows, inputs) for rows in self.split(np.tile(logits, (draws, 1)))]
        if "generator" in self.binding.arguments and not self.binding.arguments["generator"].has_default:
            return [self.one_call(rows, inputs) for _ in range(draws) for rows in self._rows(logits)]
        return [self.one_call(rows, inputs) for rows in self._rows(logits)] * draws

    def _rows(self, logits: np.ndarray) -> list[np.ndarray]:
        return [rows for row in logits for rows in self.split(row[None])]

    def run_returning_inputs(self, inputs: Inputs) -> list[tuple[Any, Any]]:
        return super().run_returning_inputs(self.default(inputs).replaced(draws=1))

    def _without_batch(self, answer: Any, V: int) -> bool:
        if self.form == "the distribution":
            found = vector(answer, V, None)
            return found is not None and found.shape == (V,)
        scalar = isinstance(answer, wire.Array) and answer.values.ndim == 0
        return scalar or (isinstance(answer, int) and not isinstance(answer, bool))

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        logits = inputs["logits"]
        self._checked(answers, inputs)
        if self.form == "the distribution":
            form = form_of(per_token(answers, logits.shape, fill=None))
            return {"probabilities": probabilities(answers, logits.shape, form)}
        return {"tokens": tokens(answers, len(logits) * inputs.get("draws", 1)).reshape(-1, len(logits))}


def _is_distribution(answers: Sequence[Any], shape: tuple[int, int]) -> bool:
    try:
        return form_of(per_token(answers, shape, fill=None)) != "logits"
    except WrongResult:
        return False


class GreedySubject(TokenSubject):
    """A function that takes the likeliest token; ``tokens`` is (1, B)."""

    told_by_answers = True

    def probe_more(self) -> None:
        """Nothing more: one call is enough."""

    def draws(self, rows: int) -> int:
        return 1

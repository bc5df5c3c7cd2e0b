"""Subjects for sampling: from logits to a distribution, to a token drawn from it, to the likeliest token.

Canonical inputs: ``logits`` (B, V), ``temperature``, ``top_k`` and ``top_p`` (None where switched off), and
``order``, the order in which the three act.  ``ties`` and ``zero`` say what holds for equal logits and for a
temperature of 0.  A candidate gets them in the layout, container and spelling that it takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import count, pairwise
from typing import Any

import numpy as np

from ..engine.cases import Case, Inputs, as_dtype
from . import wire
from .errors import CallFailed
from .masks import as_array
from .session import Built, Call
from .subject import Results, Subject, WrongResult, arrange, kind_of

SETTINGS = ("temperature", "top_k", "top_p")
SOURCES = ("logits", "probs", "log_probs")
LAYOUTS = ("(B, V)", "(V,)", "(1, V)", "(B, 1, V)")
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "temperature": (None, 1),
    "top_k": (None, 0, -1),
    "top_p": (None, 1, 0),
}  # defaults that switch a setting off
CLEAR = 0.01  # no cumulative sum of a case comes nearer to its p than this, whatever the order
TRIES = 24
BATCH_DRAWS, SINGLE_DRAWS = 2000, 300

DEFAULT_ORDER = "temperature_top_k_top_p"
ORDERS = (
    DEFAULT_ORDER,
    "temperature_top_p_top_k",
    "top_k_top_p_temperature",
    "top_p_top_k_temperature",
)


# the logits of a case


def softmax(logits: np.ndarray) -> np.ndarray:
    """Along the last axis; NaN where nothing is left."""
    with np.errstate(invalid="ignore", over="ignore"):
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)


def expressed(logits: np.ndarray, source: str) -> np.ndarray:
    """Logits as what a candidate takes: themselves, or their probabilities, or the logarithms of these."""
    if source == "logits":
        return logits
    probabilities = softmax(logits.astype(np.float64))
    with np.errstate(divide="ignore"):
        return (probabilities if source == "probs" else np.log(probabilities)).astype(logits.dtype)


def kept_counts(
    logits: np.ndarray, temperature: float | None, top_k: int | None, top_p: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """How many tokens each order keeps, (orders, R), and how near a cumulative sum comes to p, (R,).

    Both filters keep the front of the sorted distribution, so that a number says which tokens are kept.
    """
    ordered = -np.sort(-logits, axis=-1)  # (R, V)
    V = ordered.shape[-1]
    k = V if top_k is None else min(top_k, V)
    if top_p is None or top_p >= 1:
        return np.full((len(ORDERS), len(logits)), k), np.ones(len(logits))
    counts, nearest = [], np.ones(len(logits))
    for order in ORDERS:
        scale = (temperature or 1.0) if order.startswith("temperature") else 1.0
        width = k if "top_k_top_p" in order else V
        mass = softmax(ordered[:, :width] / scale).cumsum(axis=-1)
        counts.append(np.minimum((mass < top_p).sum(axis=-1) + 1, k))
        nearest = np.minimum(nearest, np.abs(mass - top_p).min(axis=-1))
    return np.array(counts), nearest


def settings_of(case: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a case as numbers, None for ``off``."""
    given = {name: case.get(name, "off") for name in SETTINGS}
    return {
        name: None if value == "off" else int(value) if name == "top_k" else float(value)
        for name, value in given.items()
    }


@lru_cache(maxsize=8192)
def logits_of(case: Case) -> np.ndarray:
    """(B, V) logits of a case: no two of a row equal, and no cumulative sum near p.

    Among a few rows the one is taken on which the orders of the settings differ most.
    """
    rng, B, V, regime = case.rng, case["B"], case["V"], case.get("regime", "ordinary")
    span = 2 * V if regime == "flat" else 41
    steps = rng.random((B * TRIES, span)).argsort(axis=1)[:, :V] - span // 2  # distinct whole numbers
    if regime == "huge":
        rows = np.where(steps % 2 == 0, 1e4, 1e4 - 1) + 0.5 * steps
    elif regime == "far apart":
        rows = 500.0 * steps
    elif regime == "ties":
        return _tied(rng, case)
    elif regime in ("ordinary", "flat", "negative", "positive", "peaked"):
        rows = np.round(steps / 10 + {"negative": -8.0, "positive": 8.0}.get(regime, 0.0), 1)
        if regime == "peaked":
            rows[np.arange(len(rows)), rng.integers(V, size=len(rows))] = 3.5
    else:
        raise ValueError(f"unknown regime {regime!r}")
    counts, nearest = kept_counts(rows, **settings_of(case))
    different = [len(set(column)) for column in counts.T]
    worth = np.where(nearest >= CLEAR, 10 + np.array(different), 10 * nearest)
    return rows.reshape(B, TRIES, V)[np.arange(B), worth.reshape(B, TRIES).argmax(axis=1)]


def _tied(rng: np.random.Generator, case: Case) -> np.ndarray:
    """Rows in which the k-th largest logit is shared: one of the equal ones is within the k, one is not."""
    B, V, k = case["B"], case["V"], int(case["top_k"])
    rows = np.empty((B, V))
    for row in rows:
        above = int(rng.integers(k))
        equal = int(rng.integers(k - above + 1, V - above + 1))
        row[:above] = 2.0 + 0.1 * np.arange(above)
        row[above : above + equal] = 1.0
        row[above + equal :] = -0.1 * (1 + np.arange(V - above - equal))
        rng.shuffle(row)
    return rows


def likely(logits: np.ndarray, temperature: float | None, top_k: int | None, top_p: float | None) -> Any:
    """The distribution under the usual order, for probing."""
    count = kept_counts(logits, temperature, top_k, top_p)[0][0]
    place = (-logits).argsort(axis=-1).argsort(axis=-1)
    return softmax(np.where(place < count[:, None], logits / (temperature or 1.0), -np.inf))


# subjects


class SamplingSubject(Subject):
    """What the three roles share: how logits and settings are passed."""

    TRIED: Mapping[str, Any] = {"temperature": 2.0, "top_k": 2, "top_p": 0.6}  # in probing, one at a time
    REPEATED = 1

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.layout = LAYOUTS[0]
        self.single = False  # takes one row as (V,) too
        self.form = ""
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
        passed = [n for n in SETTINGS if settings[n] is None and self._place(n) and not self._is_off(n)]
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
        V = rows.shape[-1]
        given: dict[str, Any] = {}
        source = next(name for name in SOURCES if name in self.binding.arguments)
        given[source] = self.array(expressed(rows, source))
        if "input_ids" in self.binding.arguments and not self.binding.arguments["input_ids"].has_default:
            given["input_ids"] = self.array(np.zeros((max(1, rows.size // V), 1), dtype=np.int64))
        built: dict[str, Any] = {}
        for name in SETTINGS:
            value, place = inputs.get(name), self._place(name)
            if place is None or (value is None and self._is_off(name)):
                continue
            if value is None:
                value = {"temperature": 1.0, "top_k": V, "top_p": 1.0}[name]
            (given if name in self.binding.arguments else built)[name] = value
        for name, value in (("do_sample", True), ("greedy", False)):
            if name in self.binding.arguments:
                given[name] = value
            elif name in self.binding.constructor:
                built[name] = value
        for known, into in ((self.binding.arguments, given), (self.binding.constructor, built)):
            if "generator" in known and not known["generator"].has_default:
                into["generator"] = wire.Random(next(self._seeds), self.framework)
        case = {"V": V}
        for known, into, role in (
            (self.binding.arguments, given, self.role.arguments),
            (self.binding.constructor, built, self.role.constructor),
        ):
            for argument in role:
                place = known.get(argument.name)
                if place is not None and argument.name not in into and not place.has_default:
                    into[argument.name] = self._constant(argument, case)
        args, kwargs = arrange(self.binding.arguments, given)
        return Call(self._object(built), self.binding.method, args, kwargs)

    def _object(self, given: Mapping[str, Any]) -> Built:
        args, kwargs = arrange(self.binding.constructor, given)
        return Built(self.binding.path, args, kwargs, variant=self.variant)

    def _is_off(self, name: str) -> bool:
        """Whether a setting is switched off by not being passed."""
        place = self._place(name)
        entry = self.binding.entry
        own = self.binding.parameters if name in self.binding.arguments else entry.get("init") or []
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
            if "(B, V)" in scores and layout != "(B, V)" and self._says_batch():
                layout = "(B, V)"  # it is held to what its author says of it
            if best is None or top > best[0]:
                best = (top, framework, layout, scores[layout][1])
                self.single = layout == "(B, V)" and scores.get("(V,)", (-1, ""))[0] >= scores[layout][0]
            if top == len(tries) or framework in own:
                break
        if best is None:
            self.problem = f"no call succeeded; the first attempt: {problems[0] if problems else 'no result'}"
            return
        _, self.framework, self.layout, self.form = best
        if not self.has("batches"):
            self.limits["B"] = (1,)
        self.probed("layout", "(B, V), (V,)" if self.single else self.layout)
        self.probed("result", self.form)
        self.probe_more()

    def probe_more(self) -> None:
        """Further conventions of a role."""

    def score(
        self, logits: np.ndarray, tries: Sequence[Mapping[str, Any]], problems: list[str]
    ) -> tuple[int, str]:
        """How many of the tries come out right in the layout that is set (-1: none ran), and the form."""
        raise NotImplementedError

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

    def _says_batch(self) -> bool:
        """Whether docstring or comments of the object give logits a batch axis."""
        import re

        words = str(self.binding.entry.get("doc", ""))
        batch, vocabulary = (
            r"(?:b|n|bs|bsz|n?_?batch(?:_?size)?)",
            r"(?:v|c|vocab(?:ulary)?(?:_?size)?|n_?vocab)",
        )
        return bool(re.search(rf"[\[(]\s*{batch}\s*,\s*{vocabulary}\b", words, re.IGNORECASE))


class DistributionSubject(SamplingSubject):
    """Results: ``probabilities`` (B, V) float64; filtered logits and log-probabilities are turned into them."""

    def score(
        self, logits: np.ndarray, tries: Sequence[Mapping[str, Any]], problems: list[str]
    ) -> tuple[int, str]:
        parts = self.attempt(logits, tries, problems)
        first = next((part for part in parts if part is not None), None)
        if first is None:
            return -1, ""
        try:
            self.form = form_of(self.stack(first, logits.shape, fill=None))
        except WrongResult as error:
            problems.append(str(error))
            form = other_form(first)
            return (0, form) if form else (-1, "")
        right = 0
        for part, settings in zip(parts, tries, strict=True):
            if part is None:
                continue
            try:
                found = self.probabilities(part, logits.shape)
            except WrongResult:
                continue
            right += bool(np.allclose(found, likely(logits, **settings), atol=1e-4))  # type: ignore[arg-type]
        return right, self.form

    def probe_more(self) -> None:
        if self.form not in ("probabilities", "log-probabilities", "logits"):
            self.limits["V"] = ()  # something else under a name of this role: it is shown, and not judged
            return
        if self.has("argument top_k"):
            logits = np.array([[1.0, 2.0, 1.0, 0.0, 1.0]])
            settings = dict.fromkeys(SETTINGS) | {"top_k": 2}
            try:
                part = self.attempt(logits, [settings], [])[0]
                kept = int((self.probabilities(part, logits.shape) > 1e-6).sum()) if part else 0
            except WrongResult:
                kept = 0
            if self.conventions.get("ties", ("", ""))[1] != "declared":
                known = {2: "exactly_k", 4: "all_equal"}
                self.conventions["ties"] = (
                    known.get(kept, "exactly_k"),
                    "probed" if kept in known else "default",
                )

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        return {"probabilities": self.probabilities(answers, inputs["logits"].shape)}

    def probabilities(self, answers: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray:
        values = self.stack(answers, shape, 0.0 if self.form == "probabilities" else -np.inf)
        if self.form == "probabilities":
            return values
        if self.form == "log-probabilities":
            with np.errstate(over="ignore"):
                return np.exp(values)
        return softmax(values)

    def stack(self, answers: Sequence[Any], shape: tuple[int, ...], fill: float | None) -> np.ndarray:
        """(B, V) float64 from what came back for the pieces."""
        B, V = shape
        found = []
        for answer in answers:
            values = vector(answer, V, fill)
            rows = B // len(answers)
            if values is None or values.shape not in (
                (rows, V),
                (rows, 1, V),
                (V,) if rows == 1 else (rows, V),
            ):
                told = kind_of(answer) if values is None else f"an array of shape {values.shape}"
                wanted = f"({V},)" if self.layout == "(V,)" else f"({rows}, {V})"
                raise WrongResult(
                    f"it returned {told} for logits of shape {wanted}; expected one number for each token"
                )
            found.append(values.reshape(rows, V).astype(np.float64))
        return np.concatenate(found)


def form_of(values: np.ndarray) -> str:
    """What a result of logits of both signs is: no known bug of sampling makes one of these look like another."""
    finite = values[np.isfinite(values)]
    if np.isfinite(values).all() and (values >= 0).all() and (values <= 1 + 1e-6).all():
        return "probabilities"
    if finite.size and (finite <= 1e-6).all():
        with np.errstate(over="ignore"):
            if np.allclose(np.exp(values).sum(axis=-1), 1.0, atol=1e-3):
                return "log-probabilities"
    return "logits"


def vector(answer: Any, V: int, fill: float | None) -> np.ndarray | None:
    """The numbers per token in an answer: an array, nested lists, pairs of values and indices, a dict of ids."""
    if isinstance(answer, dict):
        if answer and all(key.isdigit() and int(key) < V for key in answer):
            row = np.full(V, 0.0 if fill is None else fill)
            for key, value in answer.items():
                number = (
                    value.values.item() if isinstance(value, wire.Array) and value.values.size == 1 else value
                )
                if not isinstance(number, int | float):
                    return None
                row[int(key)] = number
            return row
        answer = tuple(answer.values())
    if isinstance(answer, tuple | list) and answer and all(isinstance(item, wire.Array) for item in answer):
        if all(item.values.size == 1 for item in answer) and len(answer) == V:
            return np.array([item.values.item() for item in answer])
        if len(answer) == 2 and _are_values_and_indices(answer, V):
            return _scattered(answer[0].values, answer[1].values, V, fill)
        fitting = [
            item for item in answer if item.values.shape[-1:] == (V,) and item.values.dtype.kind == "f"
        ]
        if not fitting:
            return None
        answer = fitting[0]
    array = as_array(answer)
    if array is None or (array[0].dtype.kind in "iu" and not np.isin(array[0], (0, 1)).all()):
        return None  # whole numbers are ids of tokens, but for those of a one-hot row
    return array[0] if array[0].dtype.kind in "fiu" else None


def _are_values_and_indices(answer: Sequence[wire.Array], V: int) -> bool:
    values, indices = answer[0].values, answer[1].values
    return (
        values.shape == indices.shape
        and values.dtype.kind == "f"
        and indices.dtype.kind in "iu"
        and values.ndim >= 1
        and bool(((indices >= 0) & (indices < V)).all())
    )


def _scattered(values: np.ndarray, indices: np.ndarray, V: int, fill: float | None) -> np.ndarray:
    if fill is None:
        fill = 0.0 if values.size and (values >= 0).all() and (values <= 1 + 1e-6).all() else -np.inf
    whole = np.full((*values.shape[:-1], V), fill)
    np.put_along_axis(whole, indices.astype(np.int64), values.astype(np.float64), axis=-1)
    return whole


class TokenSubject(SamplingSubject):
    """Results: ``tokens`` (draws, B); or ``probabilities`` of a function that returns the distribution itself."""

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
                tokens = self.stack(part, len(logits))
            except WrongResult as error:
                problems.append(str(error))
                continue
            best = tokens == logits.argmax(axis=1)
            open_ = all(value is None for value in settings.values())
            right += bool((((tokens >= 0) & (tokens < logits.shape[1])) if open_ else best).all())
        first = next((part for part in parts if part is not None), None)
        if first is not None and not right and self._is_distribution(first, logits):
            return len(tries), "the distribution"
        return (right, "a token") if right else (-1, "")

    def _is_distribution(self, answers: Sequence[Any], logits: np.ndarray) -> bool:
        other = DistributionSubject(self.session, self.binding)
        other.layout = self.layout
        try:
            return form_of(other.stack(answers, logits.shape, None)) != "logits"
        except WrongResult:
            return False

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

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        logits = inputs["logits"]
        if self.form == "the distribution":
            other = DistributionSubject(self.session, self.binding)
            other.layout = self.layout
            values = other.stack(answers, logits.shape, None)
            other.form = form_of(values)
            return {"probabilities": other.probabilities(answers, logits.shape)}
        tokens = self.stack(answers, len(logits) * inputs.get("draws", 1))
        return {"tokens": tokens.reshape(-1, len(logits))}

    def stack(self, answers: Sequence[Any], total: int) -> np.ndarray:
        """``total`` token ids from what came back for the pieces."""
        found = []
        for answer in answers:
            wanted = total // len(answers)
            tokens = ids_in(answer, wanted)
            if tokens is None:
                given = "one row" if wanted == 1 else f"{wanted} rows"
                raise WrongResult(
                    f"it returned {kind_of(answer)} for {given} of logits; expected a token id for each"
                )
            found.append(tokens)
        return np.concatenate(found)


class GreedySubject(TokenSubject):
    """A function that takes the likeliest token; ``tokens`` is (1, B)."""

    def probe_more(self) -> None:
        """Nothing more: one call is enough."""

    def draws(self, rows: int) -> int:
        return 1


def ids_in(answer: Any, number: int) -> np.ndarray | None:
    """``number`` token ids in an answer: a number, an array (B,) or (B, 1), a list, the first of a tuple."""
    if isinstance(answer, dict):
        answer = tuple(answer.values())
    if isinstance(answer, int) and not isinstance(answer, bool):
        return np.array([answer]) if number == 1 else None
    if isinstance(answer, tuple | list) and answer and not isinstance(answer, int):
        if (
            all(isinstance(item, wire.Array) and item.values.size == 1 for item in answer)
            and len(answer) == number
        ):
            answer = np.array([item.values.item() for item in answer])
            return answer.astype(np.int64) if answer.dtype.kind in "iu" else None
        array = as_array(answer)
        if array is None or array[0].dtype.kind not in "iu":
            for item in answer:
                found = ids_in(item, number)
                if found is not None:
                    return found
            return None
        values = array[0]
    elif isinstance(answer, wire.Array):
        values = answer.values
    else:
        return None
    whole = values.dtype.kind in "iu" or (
        values.dtype.kind == "f" and bool((values == np.floor(values)).all())
    )
    fits = values.shape in ((number,), (number, 1), (1, number)) or (number == 1 and values.size == 1)
    return values.reshape(-1).astype(np.int64) if whole and fits else None


def other_form(answers: Sequence[Any]) -> str:
    """What a function returns that returns no distribution: a token, ids of tokens, or a mask; else nothing."""
    if any(ids_in(answer, n) is not None for answer in answers for n in (1, 2)):
        return "a token"
    arrays = [array for answer in answers if (array := as_array(answer)) is not None]
    kinds = {array[0].dtype.kind for array in arrays}
    return "a mask" if kinds == {"b"} else "token ids" if kinds and kinds <= set("iu") else ""

"""The subject for the loss under teacher forcing: cross-entropies, reductions, padding."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from ..engine.cases import Case, Inputs, OutOfDomain, normal
from . import wire
from .errors import CallFailed
from .masks import as_array
from .names import plain
from .session import Call
from .stand_in import PAD
from .subject import Results, WrongResult, kind_of
from .teaching import TeachingSubject

SHIFTS = re.compile(
    r"\blabels? (\([^)]*\) )?(are|is|=+) (just |simply )?(the )?(same )?(as )?(the )?"
    r"input(s|[_ ]ids|[_ ]tokens)?( themselves| itself)?\b(?![^.\n]{0,40}shift)"
    r"|\bshift so that tokens < ?n predict n"
    r"|(?<!not )\bshift(s|ed)? (the |logits and |both |labels |them |it )*(inside|internally|in here|itself)\b",
    re.IGNORECASE,
)  # what is said of a loss that shifts labels against logits itself
ONE_POSITION = re.compile(
    r"[(\[]\s*(V|C|n_?vocab|vocab\w*|num_classes)\s*,?\s*[)\]]"
    r"|\b(one|single|a) (position|token|step|label|example|sample|class)\b",
    re.IGNORECASE,
)  # what is said of a loss for one position
NAMES = {"row": "(T, V)", "batch": "(B, T, V)", "one": "(V,)"}


class LossSubject(TeachingSubject):
    """``logits`` (B, T, V), ``labels`` and ``real`` (B, T) in; ``loss`` and the ``weights`` of the labels out."""

    told_by_answers = True

    KINDS = ("bool", "float64", "int64")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.own_pad: int | None = None  # the id that it leaves out without being told
        self.mask_kind = "bool"
        self.onehot = False
        if not self._masked():
            self.conventions.pop("polarity", None)
        self._reduction_of_parameter()
        if self.conventions.get("label_offset", ("", ""))[1] == "default" and SHIFTS.search(self.words):
            self.conventions["label_offset"] = ("shifts_inside", "by its author's words")
        self.named_by_parameter("input", "logits")

    def _reduction_of_parameter(self) -> None:
        known = self.role.convention("reduction")
        for parameter in (*self.binding.parameters, *(self.binding.entry.get("init") or ())):
            value = parameter["default"] if parameter["has_default"] else None
            named = plain(parameter["name"]) in ("reduction", "reduce") and known and value in known.values
            if named and self.conventions.get("reduction", ("", "declared"))[1] != "declared":
                self.conventions["reduction"] = (str(value), "by its parameter's default")

    def probe(self) -> None:
        problems: list[str] = []
        case = Case({"B": 3, "T": 4, "V": 5, "padding": "none", "pad": PAD, "dtype": "float64", "seed": 1})
        best: tuple[str, str, list[str], list[str]] | None = None
        for container, kind in product(self.containers(), self.KINDS if self._masked() else ("bool",)):
            self.container, self.mask_kind = container, kind
            answered, right = self._try_layouts(case, problems)
            if answered and (best is None or right):
                best = (container, kind, answered, right)
            if right:
                break
        if best is not None:
            self.container, self.mask_kind, answered, right = best
            self.framework = self.container if self.container != "list" else self.framework
            if right == ["one"]:  # of a single label the mean and the sum are the same
                right = self._right_with_rows(case, answered) or right
            right = right or self._right_otherwise(case, answered)
            self._settle(case, answered, right or self._right_with_onehot(case, answered))
        elif self.conventions["label_offset"] == ("aligned", "default"):
            self._probe_otherwise(case, problems)
        else:
            self.problem = "no call succeeded"

    def _right_with_rows(self, case: Case, answered: Sequence[str]) -> list[str]:
        """The layouts of several labels that give one number, right under another convention.

        None where its author speaks of one position, for which it may serve alone.
        """
        if ONE_POSITION.search(self.words):
            return []
        rows = [n for n in answered if n != "one" and self._gives_number(case.replaced(layout=n))]
        return self._right_otherwise(case, rows) if rows else []

    def _gives_number(self, case: Case) -> bool:
        try:
            return "loss" in self.run(self.default(Inputs(case, {})))
        except CallFailed:
            return False

    def _right_with_onehot(self, case: Case, answered: list[str]) -> list[str]:
        """The layouts on which it is right if labels are given as one-hot rows; ids are kept where it is not."""
        self.onehot = True
        right = self._try_layouts(case, [])[1] or self._right_otherwise(case, list(NAMES))
        self.onehot = bool(right)
        if right:
            answered[:] = right
            self.probed("labels", "one-hot rows")
        return right

    def _probe_otherwise(self, case: Case, problems: list[str]) -> None:
        """Ids, as many as logits, are refused: does it want one-hot rows, or one label more?"""
        for container in self.containers():
            self.container = container
            right = self._right_with_onehot(case, [])
            if right:
                self._settle(case, right, right)
                return
        self.conventions["label_offset"] = ("with_bos", "probed")
        self.probe()
        if self.problem:
            self.conventions["label_offset"] = ("aligned", "default")
            self.problem = f"no call succeeded; the first attempt: {problems[0]}"

    def _settle(self, case: Case, answered: list[str], right: list[str]) -> None:
        if "smooth" in self.binding.name.lower() and not right:
            self.outside = "without smoothing it is no plain cross-entropy, and with it it is not judged"
            return
        layouts = [n for n in answered if n != "one" or n in right or len(answered) == 1]
        self.choose_layouts(layouts, right)
        if self.limits["layout"] == ("one",):
            self.irrelevant.add("T")
        self.probed("layout", ", ".join(NAMES[n] for n in self.limits["layout"]))
        self._probe_padding(case.replaced(layout=self.limits["layout"][-1]))

    def _masked(self) -> bool:
        return "mask" in self.binding.arguments

    def _try_layouts(self, case: Case, problems: list[str]) -> tuple[list[str], list[str]]:
        answered, right = [], []
        for layout in NAMES:
            if layout == "one" and right:
                break
            inputs = self.default(Inputs(case.replaced(layout=layout), {}))
            try:
                results = self.run(inputs)
            except (CallFailed, OutOfDomain) as error:
                problems.append(str(error))
                continue
            answered.append(layout)
            if fits(results, inputs):
                right.append(layout)
        return answered, right

    def _right_otherwise(self, case: Case, answered: Sequence[str]) -> list[str]:
        """The layouts on which another convention makes it right."""
        names = ("reduction", "input", "label_offset")
        tables = [c.values for n in names if (c := self.role.convention(n)) is not None]
        for values in product(*tables):
            other = self
            for name, value in zip(names, values, strict=True):
                other = other.with_convention(name, value)
            right = other._try_layouts(case, [])[1]
            if found := [n for n in answered if n in right]:
                return found
        return []

    def _probe_padding(self, case: Case) -> None:
        """Which padding it knows: an id that is passed, a mask, lengths, or an id of its own."""
        if case["layout"] == "one" or self.onehot:
            self.limits["padding"] = ("none",)
            return
        if self.takes("pad_id") or self._masked() or "lengths" in self.binding.arguments:
            taken = []
            for pad in (0, 2, -100):
                padded = self.default(Inputs(case.replaced(padding="end", pad=pad, B=2), {}))
                try:
                    self.run(padded)
                except (CallFailed, OutOfDomain):
                    continue
                taken.append(pad)
            self.limits["pad"] = tuple(taken) or (0, 2)
            if "lengths" in self.binding.arguments:
                self.limits["padding"] = ("none", "end")
            self.probed("padding", "ids, mask or lengths that are passed")
            return
        inputs = self.default(Inputs(case, {}))
        left_out = [pad for pad in (0, 1, -100) if self._leaves_out(inputs, pad)]
        if left_out and (left_out[0] >= 0 or self._means_it(inputs, left_out[0])):
            self.own_pad = left_out[0]
            self.limits["pad"] = (0,)
            self.probed("padding", f"leaves out {self.own_pad}")
        else:
            self.limits["padding"] = ("none",)
            self.probed("padding", "none")

    def _means_it(self, inputs: Inputs, pad: int) -> bool:
        """PyTorch leaves out -100 by itself: padding is meant only if it is not counted either."""
        labels = inputs["labels"].copy()
        labels[0, 1] = pad
        marked = inputs.replaced(labels=labels, real=labels != pad)
        return fits(self.run(marked), marked)

    def _leaves_out(self, inputs: Inputs, pad: int) -> bool:
        labels, logits = np.where(inputs["labels"] == pad, 3, inputs["labels"]), inputs["logits"].copy()
        labels[0, 1] = pad
        try:
            before = self.run(inputs.replaced(labels=labels))["loss"]
            logits[0, 1] = logits[0, 1, ::-1] * 2.0 + np.arange(logits.shape[2])
            after = self.run(inputs.replaced(labels=labels, logits=logits))["loss"]
        except (CallFailed, OutOfDomain, KeyError):
            return False
        return bool(np.abs(before - after) <= 1e-7 * max(1.0, abs(float(before))))

    # calling

    def default(self, inputs: Inputs) -> Inputs:
        if "labels" in inputs:
            return inputs
        case = inputs.case
        rng = case.rng
        B, T, V = case["B"], case["T"], case["V"]
        if case["layout"] == "one":
            B = T = 1
        pad = case["pad"] if self.own_pad is None else self.own_pad
        real = np.ones((B, T), dtype=bool)
        for b in range(B) if case["padding"] != "none" else ():
            n = T if b == 1 else int(rng.integers(1, T))
            real[b] = np.arange(T) < n if case["padding"] == "end" else np.arange(T) >= T - n
        labels = rng.choice([v for v in range(V) if v != pad], size=(B, T)).astype(np.int64)
        logits = normal(rng, (B, T, V)).astype(case["dtype"])
        return inputs.replaced(logits=logits, labels=np.where(real, labels, pad), real=real)

    def calls_for(self, inputs: Inputs) -> list[Call]:
        if self.outside:
            raise OutOfDomain(self.outside)
        inputs = self.default(inputs)
        case, logits, labels, real = inputs.case, inputs["logits"], inputs["labels"], inputs["real"]
        shifts, row = self.convention("label_offset") == "shifts_inside", case["layout"] == "row"
        shifts = shifts or self.convention("label_offset") == "with_bos"
        if row and len(labels) > 1 and (shifts or "lengths" in self.binding.arguments):
            raise OutOfDomain("rows that are joined to one cannot be shifted or have lengths")
        if shifts:  # the tokens that the model was shown, and logits for the token after the last
            if self.convention("label_offset") == "shifts_inside":
                logits = np.concatenate([logits, logits[:, :1]], axis=1)
            labels = np.concatenate([np.full((len(labels), 1), 3), labels], axis=1)
            real = np.concatenate([np.ones((len(real), 1), dtype=bool), real], axis=1)
        if row:
            logits, labels, real = logits.reshape(-1, case["V"]), labels.reshape(-1), real.reshape(-1)
        if self.onehot:
            labels = (np.eye(case["V"])[np.where(real, labels, 0)] * real[..., None]).astype(logits.dtype)
        given: dict[str, Any] = {"logits": self.held(self._input(logits)), "labels": self.held(labels)}
        if case["layout"] == "one":
            if labels.size > 1 or self.onehot:
                raise OutOfDomain("it takes one position at a time")
            label = self.held(labels.reshape(())) if self.container == "torch" else int(labels.reshape(()))
            given = {"logits": self.held(self._input(logits.reshape(-1))), "labels": label}
        bound = self.binding.arguments
        if "pad_id" in bound:
            given["pad_id"] = case["pad"]
        if "mask" in bound and (not bound["mask"].has_default or not self.takes("pad_id")):
            marked = real if self.convention("polarity") == "allow" else ~real
            kind = logits.dtype.name if self.mask_kind == "float64" else self.mask_kind
            given["mask"] = self.held(marked.astype(kind))
        if "lengths" in bound:
            counts = real.sum(axis=-1, dtype=np.int64)
            given["lengths"] = int(counts) if row else self.held(counts)
        if "reduction" in bound and ("reduction" in inputs or not bound["reduction"].has_default):
            given["reduction"] = self._reduction(inputs)
        for name, value in (("smoothing", 0.0), ("vocab_size", case["V"])):
            if name in bound:
                given[name] = value
        return [self.make_call(case, given)]

    def _input(self, logits: np.ndarray) -> np.ndarray:
        kind = self.convention("input")
        if kind == "logits":
            return logits
        found = log_softmax(logits)
        return (np.exp(found) if kind == "probs" else found).astype(logits.dtype)

    def _reduction(self, inputs: Inputs) -> str:
        return str(inputs.get("reduction", self.convention("reduction")))

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        inputs = self.default(inputs)
        found = numbers(answers[0])
        if found is None:
            raise WrongResult(f"it returned {kind_of(answers[0])}; a loss is a number")
        real, (path, values) = inputs["real"], found
        reduction = self._reduction(inputs)
        results: Results = {
            "weights": weights(real, reduction, inputs.case["layout"]),
            "path": path,
            "shape": values.shape,
            "size": values.size,
        }
        item = wire_item(answers[0], path)
        results["tensor"] = isinstance(item, wire.Array) and item.container == "torch"
        if reduction == "none" and values.size == real.size:
            results["each"] = values.reshape(real.shape)
            results["loss"] = results["each"].sum()
        elif reduction != "none" and values.size == 1:
            results["loss"] = values.reshape(())
        return results

    def gradient(self, inputs: Inputs, results: Results) -> np.ndarray | None:
        """(B, T, V): the gradient of the loss (of the sum of losses) with respect to the logits; None if cut off."""
        call = self.calls_for(inputs)[0]
        place = self.binding.arguments["logits"]
        wrt = place.name if place.position is None else place.position
        ones = self.array(np.ones(results["shape"]))
        self.last_calls = (call,)
        found = self.session.vjp(call, [wrt], results["path"], ones)
        if found is None:
            return None
        shape = inputs["logits"].shape
        values = found[0].values
        if self.convention("label_offset") == "shifts_inside":
            values = values[..., :-1, :]
        return values.reshape(shape)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """In float64, over the last axis."""
    shifted = logits.astype(np.float64)
    shifted = shifted - shifted.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def cross_entropies(logits: np.ndarray, labels: np.ndarray, real: np.ndarray) -> np.ndarray:
    """(B, T): -log softmax(logits)[label] at real labels, 0 at padding."""
    safe = np.where(real, labels, 0)
    return np.where(real, -np.take_along_axis(log_softmax(logits), safe[..., None], axis=-1)[..., 0], 0.0)


def weights(real: np.ndarray, reduction: str, layout: str) -> np.ndarray:
    """(B, T): what each label's loss counts in the whole, by the reduction."""
    rows = real.reshape(1, -1) if layout == "row" else real
    marked = rows.astype(np.float64)
    counts = np.maximum(marked.sum(axis=1, keepdims=True), 1.0)
    found = {
        "mean": marked / max(1.0, marked.sum()),
        "row_mean": marked / counts / len(rows),
        "row_sum": marked / len(rows),
    }.get(reduction, marked)
    return found.reshape(real.shape)


def fits(results: Results, inputs: Inputs) -> bool:
    """Whether a loss is right, roughly: for probing."""
    expected = (
        results["weights"] * cross_entropies(inputs["logits"], inputs["labels"], inputs["real"])
    ).sum()
    loss = results.get("loss")
    return loss is not None and bool(np.abs(loss - expected) <= 1e-4 * max(1.0, abs(expected)))


def numbers(raw: Any) -> tuple[tuple[str | int, ...], np.ndarray] | None:
    """The loss within an answer: its path and values in float64; of several the one named loss, or the first."""
    if isinstance(raw, wire.Array):
        return ((), raw.values.astype(np.float64)) if raw.values.dtype.kind in "fiu" else None
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return (), np.asarray(float(raw))
    items: list[tuple[str | int, Any]] = []
    if isinstance(raw, Mapping):
        items = sorted(raw.items(), key=lambda pair: "loss" not in str(pair[0]).lower())
    elif isinstance(raw, tuple | list):
        array = as_array(raw)
        if isinstance(raw, list) and array is not None and array[0].dtype.kind in "fiu":
            return (), array[0].astype(np.float64)
        items = list(enumerate(raw))
    found = [((name, *inner[0]), inner[1]) for name, item in items if (inner := numbers(item)) is not None]
    return next((pair for pair in found if pair[1].ndim == 0), found[0] if found else None)


def wire_item(raw: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        raw = raw[step]
    return raw

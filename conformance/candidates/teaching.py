"""Subjects for teacher forcing: what they share, and the shift of the target to the right."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..engine.cases import Case, Inputs, OutOfDomain
from . import wire
from .errors import CallFailed
from .masks import as_array
from .names import core, plain
from .session import Call
from .stand_in import EOS, PAD
from .subject import Results, Subject, WrongResult, kind_of

BATCH = re.compile(r"\bbatch|\bbsz\b|[\[(`]\s*(?:B|N|bs|batch\w*)\s*,", re.IGNORECASE)


class TeachingSubject(Subject):
    """What the roles of teacher forcing share: single sequences or batches, and what holds them."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.container = self.framework
        self.outside = ""  # why nothing can be asked of the candidate, though its name fits

    @property
    def words(self) -> str:
        """What the author says of the object, in comments and docstrings."""
        return str(self.binding.entry.get("doc", ""))

    def containers(self) -> list[str]:
        """What may hold tokens, most likely first; plain Python is tried with plain lists."""
        known = self.binding.entry["frameworks"]
        return list(
            dict.fromkeys([*known, *([] if known else ["list"]), self._default_framework(), "numpy", "list"])
        )

    def held(self, values: np.ndarray) -> wire.Array:
        return wire.Array(values, values.dtype.name, self.container)

    def choose_layouts(self, answered: Sequence[str], right: Sequence[str]) -> None:
        """Which layouts are taken.  What runs on a batch by accident is not held to it unless its author says so."""
        kept = [n for n in answered if not right or n in right or (n == "batch" and self.says_batch())]
        self.limits["layout"] = tuple(kept)
        if "batch" not in kept:
            self.irrelevant.add("B")

    def says_batch(self) -> bool:
        return bool(BATCH.search(self.words)) or "batch" in plain(self.binding.name)

    def says_bos(self) -> bool:
        """Whether its author says that the target comes with BOS."""
        if "target" not in self.binding.arguments:
            return False
        name = re.escape(self.binding.arguments["target"].name)
        between = r"(?:(?!input|output|return|result|->)[^\n→.;]){0,40}"
        starts = r"(?:including|incl\.?|starts with|starting with|begins with|beginning with) (?:the )?"
        has = rf"\b{name}\b{between}(?:(?::|=|is)\s*[\[(]\s*|{starts})[<`'\"]?(?:BOS|SOS)\b"
        return bool(re.search(has, self.words, re.IGNORECASE))

    def takes(self, name: str) -> bool:
        """Whether a value reaches the candidate, in the call or in the constructor."""
        return name in self.binding.arguments or name in self.binding.constructor

    def named_by_parameter(self, convention: str, *arguments: str) -> None:
        """A convention that follows from the name of a parameter, unless it was declared."""
        known = self.role.convention(convention)
        if known is None or self.conventions.get(convention, ("", "declared"))[1] == "declared":
            return
        for argument in arguments:
            place = self.binding.arguments.get(argument) or self.binding.constructor.get(argument)
            for value, names in known.by_name.items():
                fits = {plain(name) for name in names}
                if place is not None and (plain(place.name) in fits or core(place.name) in fits):
                    self.conventions[convention] = (value, "by name")
                    return


class ShiftSubject(TeachingSubject):
    """``target`` (B, T) in: BOS, tokens, EOS, padding.  ``input`` and perhaps ``labels`` (B, T - 1) out."""

    told_by_answers = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.form = "drop"
        self.bos: int | None = None  # the id that is always put in front, where none is passed

    def probe(self) -> None:
        if not self.takes("bos_id") and self.binding.entry["kind"] != "class":
            self.conventions.setdefault("bos", ("", ""))
        target = 21 + np.arange(18).reshape(3, 6)
        target[:, 0] = 1
        problems: list[str] = []
        best: tuple[int, str, str, int | None, list[str], list[str]] | None = None
        for container in self.containers():
            self.container = container
            found: dict[str, tuple[bool, str, int | None]] = {}
            for layout in ("batch", "single"):
                case = Case({"layout": layout, "T": 6, "B": 3, "bos": 1, "padded": False, "seed": 0})
                try:
                    answer = self.send([self._call(case, target)])[0]
                    found[layout] = self._understand(
                        _parts(answer, layout), target if layout == "batch" else target[:1]
                    )
                except CallFailed as error:
                    problems.append(str(error))
            right = [n for n, (ok, _, _) in found.items() if ok]
            if found and (best is None or (right and not best[0])):
                _, form, bos = found[(right or list(found))[0]]
                best = (len(right), container, form, bos, list(found), right)
        if best is None:
            self.problem = f"no call succeeded; the first attempt: {problems[0] if problems else 'no result'}"
            return
        _, self.container, self.form, self.bos, answered, right = best
        if self.form in ("prepend", "raw") and self.says_bos():
            self.form, self.bos = "drop", None  # its target has a BOS already: another in front is too many
        self.framework = self.container if self.container != "list" else self.framework
        self.choose_layouts(answered, right)
        self._show()

    def _understand(
        self, parts: tuple[np.ndarray, np.ndarray | None], target: np.ndarray
    ) -> tuple[bool, str, int | None]:
        """Whether it is right, in which form, and the id in front.  By lengths alone, which no known bug changes."""
        shown, labels = (
            parts if self.convention("pair") != "labels_first" or parts[1] is None else parts[::-1]
        )
        assert shown is not None
        n = target.shape[1]
        if (
            labels is not None
            and shown.shape == labels.shape == target.shape
            and np.array_equal(shown, target)
            and np.array_equal(labels[:, :-1], target[:, 1:])
            and not np.isin(labels[:, -1], target).any()
        ):
            return True, "filled", None
        length = (labels if labels is not None else shown).shape[1]
        form = {n: "prepend", n + 1: "raw"}.get(length, "drop")
        if form == "drop":
            right = np.array_equal(shown, target[:, :-1])
            right = right and (labels is None or np.array_equal(labels, target[:, 1:]))
            return right, form, None
        first = shown[:, :1]
        fixed = (
            int(first[0, 0])
            if (first == first[0, 0]).all() and not np.isin(first, target[:, 1:]).any()
            else None
        )
        right = fixed is not None and np.array_equal(shown[:, 1:], target[:, : length - 1])
        return right, form, None if self.takes("bos_id") else fixed

    def _show(self) -> None:
        self.probed(
            "form",
            {
                "drop": "takes the target with BOS, drops its last token",
                "prepend": "takes labels, puts BOS in front and drops the last",
                "raw": "takes tokens without BOS and EOS, puts BOS in front",
                "filled": "takes the target with BOS, fills the last label",
            }[self.form],
        )
        names = {"single": "(T,)", "batch": "(B, T)"}
        self.probed("layout", ", ".join(names[n] for n in sorted(self.limits["layout"], reverse=True)))
        if self.form in ("prepend", "raw") and not self.takes("bos_id"):
            self.irrelevant.add("bos")
            if self.bos is not None:
                self.probed("first_id", str(self.bos))
        if self.form == "raw":
            self.limits["padded"], self.limits["T"] = (False,), (3, 4, 5, 7)
        self.conventions.pop("bos", None)

    def default(self, inputs: Inputs) -> Inputs:
        if "target" in inputs:
            return inputs
        return inputs.replaced(target=self.target(inputs.case))

    def target(self, case: Mapping[str, Any]) -> np.ndarray:
        """(B, T) of distinct ids: BOS, tokens, EOS; with ``padded``, rows after the first are shorter."""
        T, B = case["T"], 1 if case["layout"] == "single" else case["B"]
        target = 11 + np.arange(B * T).reshape(B, T)
        if T > 1:
            target[0, -1] = EOS  # other rows may be cut off before it, so that no two end alike
        target[:, 0] = self.front(case)
        if self.form == "raw" and T > 1:
            target[:, -1] = EOS  # which it appends itself, so that no row can end otherwise
        for b in range(1, B) if case["padded"] else ():
            real = max(2, T - b)
            target[b, real - 1] = EOS
            target[b, real:] = PAD
        return target

    def front(self, case: Mapping[str, Any]) -> int:
        return case["bos"] if self.bos is None else self.bos

    def calls_for(self, inputs: Inputs) -> list[Call]:
        inputs = self.default(inputs)
        return [self._call(inputs.case, self._given(inputs["target"]))]

    def _given(self, target: np.ndarray) -> np.ndarray:
        if target.shape[1] < 2 and self.form in ("prepend", "raw"):
            raise OutOfDomain("without a label there is nothing to shift")
        return {"prepend": target[:, 1:], "raw": target[:, 1:-1]}.get(self.form, target)

    def _call(self, case: Case, given: np.ndarray) -> Call:
        values: dict[str, Any] = {
            "target": self.held(np.array(given[0] if case["layout"] == "single" else given))
        }
        for name, value in (("bos_id", case["bos"]), ("eos_id", EOS), ("pad_id", PAD)):
            if name in self.binding.arguments:
                values[name] = value
        return self.make_call(case, values)

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        shown, labels = _parts(answers[0], inputs.case["layout"])
        if labels is not None and self.convention("pair") == "labels_first":
            shown, labels = labels, shown
        given = self._given(self.default(inputs)["target"])
        if self.convention("start") == "last_token" and shown.size and len(shown) == len(given):
            shown = shown.copy()
            for row, tokens in zip(shown, given, strict=True):
                if (tokens != PAD).any() and row[0] == tokens[tokens != PAD][-1]:
                    row[0] = self.front(inputs.case)
        if self.form == "filled" and labels is not None:
            shown, labels = shown[:, :-1], labels[:, :-1]
        results: Results = {"input": shown}
        if labels is not None:
            results["labels"] = labels
        return results


LABELS = re.compile(r"label|target|tgt_(?:y|out)|trg_(?:y|out)|output|gold")


def _parts(raw: Any, layout: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Input (B, n) and labels (B, n) or None, from an array, a pair or a dict.  Raises WrongResult."""
    depth = 1 if layout == "single" else 2
    alone = _tokens(raw, depth)
    if alone is not None:
        return alone, None
    if isinstance(raw, Mapping):
        labels = [k for k in raw if LABELS.search(k.lower()) and "input" not in k.lower()]
        items = [*(v for k, v in raw.items() if k not in labels), *(raw[k] for k in labels)]
    else:
        items = list(raw) if isinstance(raw, tuple | list) else []
    found = [tokens for item in items if (tokens := _tokens(item, depth)) is not None]
    if not found:
        wanted = "ids (T,)" if depth == 1 else "ids (B, T)"
        raise WrongResult(
            f"it returned {kind_of(raw)} for {wanted}; expected the shifted ids, alone or with labels"
        )
    return found[0], found[1] if len(found) > 1 else None


def _tokens(raw: Any, depth: int) -> np.ndarray | None:
    """Ids of one sequence or of a batch as (B, n), or None."""
    if isinstance(raw, list) and not raw:
        return np.zeros((1 if depth == 1 else 0, 0), dtype=np.int64)
    if depth == 2 and isinstance(raw, list) and raw and all(isinstance(row, list) and not row for row in raw):
        return np.zeros((len(raw), 0), dtype=np.int64)
    if isinstance(raw, tuple | list) and any(isinstance(item, wire.Array) for item in raw):
        return None
    array = as_array(raw)
    if array is None:
        return None
    values = array[0]
    while values.ndim > depth and values.shape[0] == 1:
        values = values[0]
    if values.ndim != depth:
        return None
    return values if depth == 2 else values[None]

"""The subject for whole models: the decoder stack, and what models with an encoder build on (``encoder_decoder.py``).

Canonically a model takes token ids ``tgt`` (B, T), and a ``memory`` (B, S, d) or token ids ``src`` (B, S);
its ``output`` is (B, T, V), or (B, 1, V) where it gives the last position alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ..engine.cases import Case, Inputs, OutOfDomain, normal
from . import wire
from .answers import at, leaves
from .errors import CallFailed
from .layers import BATCH_FIRST, SEQUENCE_FIRST
from .parameters import Parameter
from .positions import BATCH_FIRST as IDS_BATCH_FIRST
from .session import Built, Call
from .subject import Results, Subject, WrongResult, arrange, kept, kind_of

FIRST_WORD = 4  # ids below it may be special (padding, BOS, EOS): ordinary cases do without them
FEWER = 4  # by so many words the vocabulary of the source is smaller, where a model has two
PAD = {"src": 1, "tgt": 2}
SIZES: Mapping[str, int] = {"V": 13, "h": 2, "d": 4, "n_layers": 2, "max_len": 64}
CAUSAL_SHAPES = ("(T, T)", "(1, T, T)", "(B, T, T)", "(1, 1, T, T)", "(B, 1, T, T)")
MEMORY_SHAPES = ("(B, 1, 1, S)", "(B, 1, S)", "(B, S)", "(B, T, S)", "(B, 1, T, S)")
KINDS = ("boolean", "0 and 1", "additive")
FORMS = ("(B, T, V)", "(B, T, d)", "(B·T, V)", "(B, V)", "(B, 1, V)")
LOUD = 1.2


@dataclass(frozen=True)
class Plan:
    """How one method is called: its name (empty: the object itself) and where canonical arguments go."""

    method: str
    places: Mapping[str, Parameter]


class ModelSubject(Subject):
    """A decoder stack.  Its weights are replaced by larger ones, since at initialisation leaks are faint."""

    source = "memory"  # which input stands for the source

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.double, self.floats = False, "float64"
        self.takes, self.batched = "ids", True
        self.causal = ("boolean", "(T, T)")  # kind and shape of the causal mask; empty: none is passed
        self.padding = ("", "")  # the same of the mask over the source
        self.pick: tuple[str | int, ...] = ()
        self.form, self.width = FORMS[0], SIZES["V"]
        self.loud = True  # False: the weights stay as the constructor made them
        self.joint = False  # source and target have one table of words, and so one vocabulary
        self.plan = Plan(self.binding.method, self.binding.arguments)
        self._prepared: set[str] = set()
        if self.binding.entry["module_class"]:
            self.preparation = ("# triu makes its weights larger before the call, about 1.2 / sqrt(width)",)
        self.matches: dict[tuple[Any, ...], Any] = {}  # what the weight method found
        self._stepwise: ModelSubject | None = None  # the same through encode and decode

    @property
    def last_only(self) -> bool:
        """It returns the last position alone."""
        return self.form in ("(B, V)", "(B, 1, V)")

    @property
    def allowed(self) -> float:
        """The error allowed for an output of size 1: faults are larger by far, rounding is smaller."""
        return 1e-5 if self.floats == "float64" else 1e-4

    def has(self, need: str) -> bool:
        return self.batched if need == "batches" else super().has(need)

    def settable(self, name: str) -> bool:
        """Whether the constructor has this parameter."""
        return name in self.binding.constructor

    @property
    def layered(self) -> bool:
        """Whether the number of layers can be set."""
        return any(self.settable(n) for n in ("n_layers", "n_decoder_layers"))

    def with_convention(self, name: str, value: str) -> Subject:
        """The same object under another convention; one that is absurd for it takes no case at all."""
        other = super().with_convention(name, value)
        assert isinstance(other, ModelSubject)
        other._stepwise = None
        if name == "layout" and not other._rows_apart():
            other.limits = {**other.limits, "B": ()}
        return other

    def _rows_apart(self) -> bool:
        """Whether the rows of a batch do not touch each other, as far as one case shows."""
        inputs = self.default(self.plain_inputs(Case({"B": 3, "T": 4, "S": 5, **SIZES, "seed": 8})))
        try:
            whole, last = self.call(inputs)["output"], self.call(rows(inputs)[-1])["output"]
        except (CallFailed, OutOfDomain):
            return False
        return whole[-1:].shape == last.shape and bool(np.abs(whole[-1:] - last).max() < 1e-4)

    def variation(self, **attributes: Any) -> ModelSubject:
        """The same object with other attributes, such as ``variant``, and a memory of its own."""
        other = type(self)(self.session, self.binding)
        other.__dict__.update(
            {**self.__dict__, "remembered": {}, "matches": {}, "_stepwise": None, **attributes}
        )
        return other

    # probing

    def probe(self) -> None:
        case = Case({"B": 3, "T": 4, "S": 5, **SIZES, "seed": 7})
        problems: list[str | CallFailed] = []
        if self.limits.get("B") == ():
            return
        if not (
            self._probe_batches(case, problems)
            or self._probe_turned(case)
            or (not self.problem and self._probe_batches(case, problems, batched=False))
        ):
            self.batched = True
            self.problem += (
                f"no call succeeded; the first attempt: {problems[0] if problems else 'no result'}"
            )
            return
        self.probed("input", "token ids" if self.takes == "ids" else "vectors (B, T, d)")
        self.probed("result", self.form)
        if not self.batched:
            self.probed("batch", "single sequences")
        if "causal_mask" in self.plan.places:
            self.probed("mask_kind", self.causal[0] or "its own")
            if self.causal[1]:
                self.probed("mask_shape", self.causal[1])
        self._probe_padding(case)
        self._probe_positions(case)

    def _probe_turned(self, case: Case) -> bool:
        """(T, B), where no call with (B, T) succeeds: S is not T, so that no batch is taken for a sequence.

        Where the author writes that the batch comes first, the layout may be the mistake: then that is told.
        """
        if self.conventions.get("layout", ("", "declared"))[1] == "declared":
            return False
        turned = self.variation(conventions={**self.conventions, "layout": ("sequence_first", "probed")})
        if not turned._probe_batches(case, []) or not turned._rows_apart():
            return False
        words = f"{self.binding.entry.get('doc', '')}\n{self.binding.entry.get('file_doc', '')}"
        says_batch_first = BATCH_FIRST.search(words) or IDS_BATCH_FIRST.search(words)
        if says_batch_first and not SEQUENCE_FIRST.search(words):
            declare = f'conventions.{self.binding.entry["name"]}.layout = "sequence_first"'
            self.problem = (
                f"correct if you meant (T, B), the sequence first: then declare it in triu.toml: {declare}. "
                "With the batch first, (B, T), "
            )
            return False
        self.conventions = turned.conventions
        return self._probe_batches(case, [])

    def _probe_batches(self, case: Case, problems: list[str | CallFailed], *, batched: bool = True) -> bool:
        ways = product((batched,), ("ids", "vectors"), ("float64", "float32"))
        return any(self._probe_with(*way, case, problems) for way in ways)

    def _probe_with(
        self, batched: bool, takes: str, floats: str, case: Case, problems: list[str | CallFailed]
    ) -> bool:
        self.batched, self.takes, self.floats = batched, takes, floats
        self.double = floats == "float64" and bool(self.binding.entry["module_class"])
        inputs = self.default(self.plain_inputs(case))
        options = list(self._mask_options())
        changed = inputs["tgt"].copy()
        changed[:, -1] = (changed[:, -1] - FIRST_WORD + 1) % (SIZES["V"] - FEWER - FIRST_WORD) + FIRST_WORD
        pair = (inputs, inputs.replaced(tgt=changed))
        accepted: list[tuple[tuple[str, str], tuple[str, str], Any]] = []
        for part in (options[:1], options[1:]):  # nearly always the first is right
            for causal, padding, raws in self._try_masks(part, pair, problems):
                shown = self._locate(raws[0], case)
                if shown is None:
                    problems.append(f"it returned {kind_of(raws[0])} for B = 3, T = 4 and V = {SIZES['V']}")
                    continue
                if self._is_causal(raws, shown[0], shown[1]):
                    return self._settle(causal, padding, shown)
                accepted.append((causal, padding, shown))
        usable = [a for a in accepted if a[0] != ("", "") or "causal_mask" not in self.plan.places]
        for causal, padding, shown in usable[:1] or accepted[:1]:
            return self._settle(causal, padding, shown)
        return False

    def _settle(self, causal: tuple[str, str], padding: tuple[str, str], shown: Any) -> bool:
        self.causal, self.padding = causal, padding
        self.pick, self.form, self.width = shown
        return True

    def _mask_options(self) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
        """Kinds and shapes of the causal mask, and of the mask over the source where that is required."""
        causal: list[tuple[str, str]] = [("", "")]
        place = self.plan.places.get("causal_mask")
        if place is not None:
            causal = [*product(KINDS, CAUSAL_SHAPES), ("", "")]
        padding: list[tuple[str, str]] = [("", "")]
        wanted = self.plan.places.get("memory_mask")
        if wanted is not None and not wanted.has_default:
            padding += product(KINDS, MEMORY_SHAPES)
        for over_source in padding:
            for kind in causal:
                if not kind[0] or over_source[0] in ("", kind[0]):  # both masks of one kind
                    yield kind, over_source

    def _try_masks(
        self,
        options: Sequence[tuple[tuple[str, str], tuple[str, str]]],
        pair: Sequence[Inputs],
        problems: list[str | CallFailed],
    ) -> Iterator[tuple[tuple[str, str], tuple[str, str], list[Any]]]:
        calls: list[Call] = []
        for self.causal, self.padding in options:
            try:
                calls += [call for inputs in pair for call in self.calls_for(inputs)]
            except CallFailed as error:
                problems.append(kept(error))
                return
        answers = self.session.calls(calls) if calls else []
        each = len(answers) // len(options) if options else 0
        for number, (causal, padding) in enumerate(options):
            part = answers[number * each : (number + 1) * each]
            failed = next((answer for answer in part if isinstance(answer, CallFailed)), None)
            if failed is not None:
                problems.append(failed)
                continue
            yield causal, padding, [part[each // 2 - 1], part[-1]]

    def _locate(self, raw: Any, case: Case) -> tuple[tuple[str | int, ...], str, int] | None:
        """Where the output stands in what came back, in which form, and its last axis; None if nowhere."""
        B, T, V, width = case["B"], case["T"], case["V"], case["h"] * case["d"]
        found = [(path, item.values) for path, item in leaves(raw) if item.values.dtype.kind == "f"]
        for form in FORMS:
            last = width if form == "(B, T, d)" else V if self.settable("V") else 0
            axes: tuple[int, ...] = {"(B·T, V)": (B * T,), "(B, V)": (B,), "(B, 1, V)": (B, 1)}.get(
                form, (B, T)
            )
            if not self.batched:
                axes = axes[1:]
                if form == "(B·T, V)":
                    continue
            for path, values in found:
                turned = self._turned(values)
                fits = turned.ndim == len(axes) + 1 and turned.shape[:-1] == axes
                if fits and (not last or turned.shape[-1] == last):
                    return path, form, int(turned.shape[-1])
        for path, values in found:  # another width: the claim about the shape shall see it
            if self._turned(values).shape[:-1] == ((B, T) if self.batched else (T,)):
                return path, FORMS[0], V
        return (found[0][0], FORMS[0], V) if found and not self.settable("V") else None

    def _is_causal(self, raws: Sequence[Any], pick: tuple[str | int, ...], form: str) -> bool:
        if form in ("(B, V)", "(B, 1, V)"):
            return True
        outputs = []
        for raw in raws:
            item = at(raw, pick)
            if not isinstance(item, wire.Array) or item.values.ndim < 2:
                return False
            outputs.append(self._canonical(item.values, form, 3, 4))
        if outputs[0].shape != outputs[1].shape or not all(np.isfinite(o).all() for o in outputs):
            return False
        return bool(np.abs(outputs[0] - outputs[1])[:, :-1].max(initial=0.0) < 1e-4)

    def _probe_padding(self, case: Case) -> None:
        """Which kind and shape of a mask over the source blocks; at least which one is taken."""
        if self.keyed or not any("memory_mask" in plan.places for plan in self.plans):
            return
        real = np.arange(case["S"])[None, :] < np.array([[3], [4], [2]])
        inputs = self.default(self.plain_inputs(case)).replaced(allowed=real)
        pair = (inputs, self.disturbed(inputs, ~real))
        taken: list[tuple[str, str]] = []
        options = [(self.causal, option) for option in product(KINDS, MEMORY_SHAPES)]
        default, self.padding = self.padding, ("", "")
        causal = self.causal
        for _, padding, raws in self._try_masks(options, pair, []):
            values = [
                item.values for item in (at(raw, self.pick) for raw in raws) if isinstance(item, wire.Array)
            ]
            taken.append(padding)
            if len(values) == 2 and values[0].shape == values[1].shape:
                with np.errstate(invalid="ignore"):
                    if np.abs(values[0] - values[1]).max() < 1e-4:
                        taken.insert(0, padding)
                        break
        self.causal = causal
        self.padding = taken[0] if taken else default
        if taken:
            self.probed("source_mask_kind", self.padding[0])
            self.probed("source_mask_shape", self.padding[1])

    def disturbed(self, inputs: Inputs, where: np.ndarray) -> Inputs:
        """Another source at the places (B, S) that are True."""
        if self.source == "src":
            return inputs.replaced(
                src=np.where(where, other_words(inputs["src"], self.words("src")), inputs["src"])
            )
        noise = normal(inputs.case.rng, inputs["memory"].shape, 3.0)
        return inputs.replaced(
            memory=np.where(where[:, :, None], inputs["memory"] + noise + 1.0, inputs["memory"])
        )

    def _probe_positions(self, case: Case) -> None:
        """Whether one layer tells the order of earlier tokens; shown, and asked for by one claim."""
        if not self.settable("n_layers") or self.takes != "ids":
            return
        inputs = self.default(self.plain_inputs(case.replaced(n_layers=1)))
        tgt = inputs["tgt"].copy()
        tgt[:, 0], tgt[:, 1] = FIRST_WORD, FIRST_WORD + 1
        swapped = tgt.copy()
        swapped[:, [0, 1]] = tgt[:, [1, 0]]
        try:
            one, two = (self.call(inputs.replaced(tgt=ids))["output"] for ids in (tgt, swapped))
        except CallFailed:
            return
        if one.shape == two.shape and np.isfinite(one).all() and np.isfinite(two).all():
            told = np.abs(one[:, -1] - two[:, -1]).max() > self.allowed
            self.probed("positions", "yes" if told else "no")

    # calling

    @property
    def plans(self) -> list[Plan]:
        """The methods that are called, in turn."""
        return [self.plan]

    def masks(self, *names: str) -> bool:
        """Whether one of the methods takes one of these masks."""
        return any(name in plan.places for plan in self.plans for name in names)

    @property
    def keyed(self) -> bool:
        """It takes padding over the source as PyTorch does: a (B, S) mask where True blocks."""
        return self.masks("memory_key_padding_mask", "src_key_padding_mask")

    @property
    def hides_source(self) -> bool:
        """Whether it can be told by a mask which places of the source are padding."""
        return self.keyed or (self.masks("memory_mask") and bool(self.padding[0]))

    def words(self, side: str) -> int:
        """How many words the ids of a side are drawn from."""
        return SIZES["V"] - (FEWER if side == "src" and not self.joint else 0)

    def plain_inputs(self, case: Case) -> Inputs:
        given = {}
        if self.source == "memory":
            given["memory"] = normal(case.rng, (case["B"], case["S"], case["h"] * case["d"]))
        return Inputs(case, given)

    def default(self, inputs: Inputs) -> Inputs:
        """Token ids for the target, and for the source where it takes one."""
        if "tgt" in inputs:
            return inputs
        case, rng = inputs.case, inputs.case.rng
        given = {"tgt": rng.integers(FIRST_WORD, self.words("tgt"), (case["B"], case["T"]))}
        if self.source == "src":
            given["src"] = rng.integers(FIRST_WORD, self.words("src"), (case["B"], case["S"]))
        return inputs.replaced(**given)

    def calls_for(self, inputs: Inputs) -> list[Call]:
        """The calls of a batch: one, or two with ``encode``; for each row where single sequences are taken."""
        if self.batched:
            return self._calls(inputs)
        return [call for row in rows(inputs) for call in self._calls(row)]

    def _calls(self, inputs: Inputs) -> list[Call]:
        return [self.planned(self.plan, inputs, {"tgt": self.tokens(inputs, "tgt"), **self._source(inputs)})]

    def _source(self, inputs: Inputs) -> dict[str, Any]:
        return {"memory": self.sent(inputs["memory"].astype(self.floats))}

    def planned(self, plan: Plan, inputs: Inputs, given: Mapping[str, Any]) -> Call:
        """A call of a method: what is given, the masks, and None for what else is required."""
        values = {name: value for name, value in given.items() if name in plan.places}
        values.update(self._masks(plan, inputs))
        for name, place in plan.places.items():
            if name not in values and not place.has_default:
                values[name] = None
        args, kwargs = arrange(plan.places, values)
        return Call(self.built(inputs.case, self.double), plan.method, args, kwargs)

    def tokens(self, inputs: Inputs, side: str) -> wire.Array:
        """Ids as they are passed: padding put in where the constructor was told its id; or their vectors."""
        ids = inputs[side]
        hidden = inputs.get("allowed") if side == "src" else inputs.get("tgt_allowed")
        if hidden is not None and self.pads(side):
            ids = np.where(hidden, ids, self.pad_id(side))
        return self.sent(ids) if self.takes == "ids" else self._vectors(ids, inputs.case)

    def _vectors(self, ids: np.ndarray, case: Mapping[str, Any]) -> wire.Array:
        table = normal(np.random.default_rng(11), (SIZES["V"] + 1, case["h"] * case["d"]))
        return self.sent(table[ids].astype(self.floats))

    def pads(self, side: str) -> bool:
        return self.settable("pad_id") or self.settable(f"{side}_pad_id")

    def pad_id(self, side: str) -> int:
        return PAD["src"] if not self.settable(f"{side}_pad_id") else PAD[side]

    def sent(self, values: np.ndarray) -> wire.Array:
        if not self.batched:
            return self.array(values[0])
        return self.array(self._turned(values))

    def to_own(self, values: np.ndarray) -> np.ndarray:
        """A canonical output (B, T, ·) in the candidate's layout."""
        return self._turned(values) if self.batched else values[0]

    def _turned(self, values: np.ndarray) -> np.ndarray:
        if self.convention("layout") != "sequence_first" or values.ndim < 2 or not self.batched:
            return values
        return np.ascontiguousarray(values.swapaxes(0, 1))

    def _masks(self, plan: Plan, inputs: Inputs) -> dict[str, wire.Array]:
        B, T = inputs["tgt"].shape
        S = inputs[self.source].shape[1]
        masks: dict[str, wire.Array] = {}
        if "causal_mask" in plan.places and self.causal[0]:
            allowed = np.broadcast_to(np.tri(T, dtype=bool), (B, T, T))
            masks["causal_mask"] = self._mask(allowed, "polarity", self.causal)
        padded = inputs.get("allowed")
        if padded is not None or self._source_mask_required(plan):
            real = np.ones((B, S), dtype=bool) if padded is None else padded
            if "memory_mask" in plan.places and self.padding[0] and not self.keyed:
                masks["memory_mask"] = self._mask(
                    np.broadcast_to(real[:, None, :], (B, T, S)), "source_polarity", self.padding
                )
        if padded is not None:
            for name in ("memory_key_padding_mask", "src_key_padding_mask"):
                if name in plan.places:
                    masks[name] = self.array(~padded if self.batched else ~padded[0])
        hidden = inputs.get("tgt_allowed")
        if hidden is not None and "tgt_key_padding_mask" in plan.places:
            masks["tgt_key_padding_mask"] = self.array(~hidden if self.batched else ~hidden[0])
        return masks

    def _source_mask_required(self, plan: Plan) -> bool:
        place = plan.places.get("memory_mask")
        return place is not None and not place.has_default and bool(self.padding[0])

    def _mask(self, allowed: np.ndarray, polarity: str, how: tuple[str, str]) -> wire.Array:
        """(B, T, ·) with True = allowed, in the candidate's kind, polarity and shape."""
        kind, shape = how
        marked = allowed if self.convention(polarity) == "allow" else ~allowed
        values = np.where(allowed, 0.0, -np.inf).astype(self.floats) if kind == "additive" else marked
        if kind == "0 and 1":
            values = marked.astype(self.floats)
        axes = [axis.strip() for axis in shape.strip("()").split(",")]
        if axes[0] != "B":
            values = values[:1]
        if "T" not in axes[:-1]:
            values = values[:, :1]
        if len(axes) == 4:
            values = values[:, None]
        if len(axes) == 2:
            values = values[0] if axes[0] == "T" else values[:, 0]
        return self.array(np.ascontiguousarray(values))

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        B, T = inputs["tgt"].shape
        each = 1 if self.batched else len(answers) // B
        outputs = []
        for raw in answers[-1:] if self.batched else answers[each - 1 :: each]:
            item = at(raw, self.pick)
            if not isinstance(item, wire.Array) or item.values.dtype.kind != "f":
                raise WrongResult(
                    f"it returned {kind_of(raw)}; expected one score for each word at each position"
                )
            outputs.append(self._canonical(item.values, self.form, B, T).astype(np.float64))
        if len({output.shape for output in outputs}) != 1:
            raise WrongResult("it returned results of different shapes for sequences of one length")
        return {"output": np.concatenate(outputs) if outputs[0].ndim else outputs[0]}

    def _canonical(self, values: np.ndarray, form: str, B: int, T: int) -> np.ndarray:
        if not self.batched:
            values = values[None] if values.ndim else values
            return values[:, None] if form == "(B, V)" and values.ndim == 2 else values
        if form == "(B·T, V)" and values.ndim == 2 and len(values) == B * T:
            return values.reshape(B, T, -1)
        if form == "(B, V)" and values.ndim == 2:
            return values[:, None]
        return self._turned(values) if values.ndim == 3 else values

    def run(self, inputs: Inputs) -> Results:
        return self.run_up_to_capacity(inputs)

    def run_returning_inputs(self, inputs: Inputs) -> list[tuple[Any, Any]]:
        return super().run_returning_inputs(self.default(inputs))

    # building

    def built(self, case: Mapping[str, Any], double: bool = False) -> Built:
        """The object for a case, with louder weights than it was initialised with."""
        built = super().built({**SIZES, **case}, double)
        ready = built.key in self._prepared and self.session.holds(built)
        if self.loud and self.binding.entry["module_class"] and not ready:
            self.session.load(built, self._louder(built))
            self._prepared.add(built.key)
        return built

    def _louder(self, built: Built) -> dict[str, wire.Array]:
        return {
            item["name"]: self.array(louder(item["name"], item["value"].values))
            for item in self.session.parameters(built)
            if item["trainable"] and not item["alias"]
        }

    def _constant(self, argument: Any, case: Mapping[str, Any]) -> Any:
        if argument.name == "d_ff" and "dff" in case:
            return int(case["dff"])
        both = self.settable("src_V") and self.settable("V")
        if argument.name == "src_V" and both:
            return int(case["V"]) - (0 if self.joint else FEWER)
        if argument.name in ("pad_id", "src_pad_id", "tgt_pad_id"):
            return self.pad_id("tgt" if argument.name == "tgt_pad_id" else "src")
        return super()._constant(argument, case)

    def weights(self, case: Mapping[str, Any], *, repeated: bool = False) -> list[dict[str, Any]]:
        """The parameters of the object for a case: those that are trained, or all arrays of a NumPy object."""
        module = self.binding.entry["module_class"]
        found = self.session.parameters(self.built(case, self.double), repeated=repeated)
        return [item for item in found if item["trainable"] or not module]

    def load(self, case: Mapping[str, Any], values: Mapping[str, np.ndarray]) -> None:
        """Overwrite parameters of the object for a case; for a variation with a variant of its own."""
        self.remembered.clear()
        built = self.built(case, self.double)
        self.session.load(built, {name: self.array(value) for name, value in values.items()})


def rows(inputs: Inputs) -> list[Inputs]:
    """Each row of a batch as a batch of one."""
    arrays = {name: value for name, value in inputs.items() if isinstance(value, np.ndarray)}
    return [
        inputs.replaced(**{name: value[b : b + 1] for name, value in arrays.items()})
        for b in range(len(inputs["tgt"]))
    ]


def louder(name: str, values: np.ndarray) -> np.ndarray:
    """Weights with a standard deviation of 1.2/√width or more; gains and biases moved by about 0.2.

    Reproducible, different for every name; a row of zeros (that of a padding id) stays one.
    """
    rng = np.random.default_rng(zlib.crc32(f"{name} {values.shape}".encode()))
    if values.size == max(values.shape, default=1):
        return values + np.round(rng.normal(0.0, 0.2, values.shape), 2)
    wide = LOUD / np.sqrt(max(values.shape))
    scale = float(np.clip(values.std(), wide, max(1.0, wide)))
    drawn = np.round(rng.normal(0.0, scale, values.shape), 3)
    silent = ~values.any(axis=tuple(range(1, values.ndim)), keepdims=True)
    return drawn if silent.all() else np.where(silent, 0.0, drawn)


def other_words(ids: np.ndarray, words: int, step: int = 1) -> np.ndarray:
    """Each id replaced by another ordinary one."""
    return (ids - FIRST_WORD + step) % (words - FIRST_WORD) + FIRST_WORD

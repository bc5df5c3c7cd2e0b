"""Subjects for layers with weights of their own: what all of them share, and LayerNorm.

:class:`LayerSubject` serves the feed-forward as it is; attention with several heads is in ``heads.py``, blocks
are in ``blocks.py``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import Any

import numpy as np

from ...spec import Argument
from ..engine.cases import Case, Inputs, OutOfDomain, normal
from . import said, wire
from .answers import at, leaves
from .binding import Binding
from .errors import CallFailed, CandidateError
from .given_mask import FORMS, KINDS, OF_KEYS, GivenMask, find_forms
from .names import plain
from .session import Built, Call, Session
from .subject import Results, Subject, WrongResult, kind_of

COMMON_HEADS = 8  # a width that these divide is taken by nearly every layer that sets its heads itself
# Sizes of a probe all differ, so that no axis is taken for another (S is 4 where there is but one sequence).
SIZES = {"B": 3, "h": 2, "d": 5, "T": 4, "S": 5, "dff": 7, "seed": 5}


SEQUENCE_FIRST = re.compile(
    r"(sequence|seq|time|length)[- ]?(first|major)"
    r"|[(\[`](seq_len|seq_q|seq|tgt_len|T|L|S|time|length|sequence)(_\w+)?,\s*(batch(_size)?|B|N|bsz)\b",
    re.IGNORECASE,
)
BATCH_FIRST = re.compile(
    r"batch[-_ ]?first"
    r"|[(\[`](batch(_size)?|B|N|bsz),\s*(seq_len|seq|tgt_len|T|L|S|time|length|sequence)\w*\s*,"
    r"\s*(d|C|E|dim|h|embed|hidden|feature|channel|model|width)",
    re.IGNORECASE,
)


RMS_NORM = re.compile(r"\b\w*(rms|root[- ]mean[- ]squared?)[-_ ]*(layer[-_ ]*)?norm\w*", re.IGNORECASE)
LAYER_NORM = re.compile(r"layer[-_ ]*norm|\bLN\b", re.IGNORECASE)


def says_sequence_first(words: str) -> bool:
    """Whether the author writes that the sequence comes before the batch, and nowhere the contrary."""
    return bool(SEQUENCE_FIRST.search(words)) and not BATCH_FIRST.search(words)


class LayerSubject(Subject):
    """What layers share: layout of (B, T, d) arrays, place of the output, masks, parameters.

    ``sequences`` are the canonical names of the arrays (B, ·, d); the first gives the output its length.
    """

    sequences: tuple[str, ...] = ("x",)

    def __init__(self, session: Session, binding: Binding) -> None:
        super().__init__(session, binding)
        self.pick: tuple[str | int, ...] = ()
        self.pick_known = False
        self.sizes: dict[str, int] = dict(SIZES)
        self.weights_pick: tuple[str | int, ...] | None = None
        self.averaged = False
        self.unbatched = False
        self.narrow = False
        self.given: dict[str, GivenMask] = {}
        self.open: dict[str, GivenMask] = {}  # masks that hide nothing, where a call needs one
        self.double = bool(binding.entry["module_class"])
        words = f"{binding.entry.get('doc', '')}\n{binding.entry.get('file_doc', '')}"
        declared = self.conventions.get("layout", ("", ""))[1] == "declared"
        if "layout" in self.conventions and not declared and says_sequence_first(words):
            self.conventions["layout"] = ("sequence_first", "by its author's words")
        self.matches: dict[tuple[Any, ...], Any] = {}  # what the weight method found, by size

    def array(self, values: np.ndarray, dtype: str | None = None) -> wire.Array:
        """Parts of PyTorch without a module around them cannot be turned to float64: float32 for them."""
        if self.narrow and values.dtype == np.float64:
            values = values.astype(np.float32)
        return super().array(values, dtype)

    # probing

    def probe(self) -> None:
        problems: list[str] = []
        # 10, 16 and 64 wide: for heads of which each must be of even width, and for those whose number is fixed
        for d in (5, 8) if "n_heads" in self.binding.constructor else (5, 8, 32):
            self.sizes = {**SIZES, "d": d}
            for square in self._squares():
                for unbatched, narrow in product((False, True), (False, True)):
                    if narrow and (self.double or self.framework != "torch"):
                        continue
                    self.unbatched, self.narrow = unbatched, narrow
                    if any(self._takes(self.probe_inputs(square), problems) for _ in self._open_masks()):
                        if (
                            d != SIZES["d"]
                            and "n_heads" in self.binding.constructor
                            and not self._even_heads()
                        ):
                            continue
                        self._look_for_norm()
                        self._look_for_gate()
                        self._probe_norm(square)
                        self._probe_masks(square)
                        if not square and len(self.sequences) > 1:
                            self._probe_squarely()
                        self._describe()
                        return
            if self.binding.entry["kind"] != "class":
                break
        self.unbatched = self.narrow = False
        self.problem = f"no call succeeded; the first attempt: {next(filter(None, problems), 'no result')}"

    def _even_heads(self) -> bool:
        """A layer that turns pairs of features by their position (rotary) has heads of even width alone."""
        if not self.tells_order():
            return False
        self.limits["d"] = tuple(range(2, 130, 2))
        return True

    def tells_order(self) -> bool:
        """Whether what comes last depends on the order of what comes before it: positions of its own."""
        inputs, name = self.probe_inputs(True), self.sequences[0]
        turned = inputs[name].copy()
        turned[:, :-1] = inputs[name][:, -2::-1]
        try:
            before = self.run(inputs)["output"]
            after = self.run(self.default(inputs.replaced(**{name: turned})))["output"]
        except (CallFailed, OutOfDomain):
            return False
        same = before.shape == after.shape == inputs[name].shape
        return same and bool(np.abs(after - before)[:, -1].max() > 1e-6)

    def _probe_squarely(self) -> None:
        """A mask over memory or keys that is taken for T = S alone is taken all the same: its claims shall see it."""
        known = dict(self.given)
        self._probe_masks(True)
        found = {n: mask for n, mask in self.given.items() if "x" not in self.sequences or "memory" in n}
        for name in found.keys() - known:
            found[name].square = True
        self.given = {**found, **known}

    def _look_for_norm(self) -> None:
        """A lone attention or feed-forward that has a norm inside is a sublayer, with a residual around it."""
        if "wrapped" not in self.conventions:
            return
        try:
            weights = self.apart("counted").weights_of(self.sizes)
        except CallFailed:
            return
        if any(w["value"].values.size == self.width and (w["value"].values == 1).all() for w in weights):
            self.probed("wrapped", "post")

    @property
    def asked_activations(self) -> list[str]:
        """Other activations than ReLU that its code asks for by name."""
        convention = self.role.convention("activation")
        asked = self.binding.entry.get("asked_for", ())
        return [name for name in asked if convention is not None and name in convention.values]

    @property
    def asks_for_rms(self) -> bool:
        """Whether its code asks for an RMSNorm by name."""
        return "rms" in self.binding.entry.get("asked_for", ())

    def _look_for_gate(self) -> None:
        """A feed-forward with a gate, down(act(gate(x)) · up(x)), where the code asks for an activation by name.

        It has two matrices of one shape and one of its transpose; a layer of its own is computed as well.
        """
        if self.conventions.get("activation", ("", "declared"))[1] == "declared":
            return
        if not {"gelu", "silu"} & set(self.asked_activations):
            return
        try:
            found = self.apart("gated").weights_of(self.sizes)
        except CallFailed:
            return
        arrays = {w["name"]: w["value"].values.astype(np.float64) for w in found}
        d = self.width
        shapes = {name: array.shape for name, array in arrays.items() if array.ndim == 2 and d in array.shape}
        if self.role.id == "feed_forward":
            ways = permutations(shapes, 3) if len(shapes) == 3 else ()
            gated = any(self._is_gated(arrays, *names) for names in ways)
        else:
            counts = Counter(shapes.values())
            gated = any(counts[n, d] == 2 and counts[d, n] == 1 for n, _ in counts if n != d)
        if gated:
            self.probed("activation", "gated")

    def _is_gated(self, arrays: Mapping[str, np.ndarray], gate: str, up: str, down: str) -> bool:
        inputs = self.probe_inputs(False)
        x = inputs[self.sequences[0]].astype(np.float64)
        shapes = [arrays[name].shape for name in (gate, up, down)]
        if not shapes[0] == shapes[1] == shapes[2][::-1] or shapes[0][1] != x.shape[-1]:
            return False

        def linear(name: str, values: np.ndarray) -> np.ndarray:
            return values @ arrays[name].T + arrays.get(re.sub("weight$", "bias", name), np.zeros(()))

        try:
            output = self.apart("gated").run(inputs)["output"].astype(np.float64)
        except (CallFailed, OutOfDomain):
            return False
        z = linear(gate, x)
        tanh = np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))
        acts = (z / (1 + np.exp(-z)), z * (1 + tanh) / 2, z * (1 + np.vectorize(math.erf)(z / 2**0.5)) / 2)
        expected = (linear(down, act * linear(up, x)) for act in acts)
        return any(e.shape == output.shape and np.allclose(e, output, atol=1e-5, rtol=1e-3) for e in expected)

    def _probe_norm(self, square: bool) -> None:
        """Blocks try where their norms stand."""

    def _open_masks(self) -> Iterator[None]:
        """No masks first; then, for a call that demands some, those that hide nothing, shape by shape."""
        self.open = {}
        yield
        demanded = [
            a.name
            for a in self.role.arguments
            if a.kind == "mask" and (p := self.binding.arguments.get(a.name)) and not p.has_default
        ]
        for form in FORMS if demanded else ():
            self.open = {name: GivenMask(self.polarity_of(name), "boolean", [form]) for name in demanded}
            yield
        self.open = {}

    def _squares(self) -> tuple[bool, ...]:
        return (False, True)

    def probe_inputs(self, square: bool = False, sizes: Mapping[str, Any] | None = None) -> Inputs:
        case = Case({**self.sizes, **(sizes or {}), "B": 3, "T": 4, "S": 4 if square else 5})
        rng, width = case.rng, case["h"] * case["d"]
        arrays = {name: normal(rng, (3, self._length(name, case), width), 1.0) for name in self.sequences}
        return Inputs(case, arrays)

    def _length(self, name: str, case: Mapping[str, Any]) -> int:
        return case["S"] if name in ("memory", "key", "value") else case["T"]

    def _takes(self, inputs: Inputs, problems: list[str]) -> bool:
        try:
            raw = self.send(self.calls_for(inputs))[0]
        except (CallFailed, OutOfDomain) as error:
            problems.append(str(error))
            return False
        shape = inputs[self.sequences[0]].shape
        shape = shape[1:] if self.unbatched else shape
        found = [path for path, item in leaves(raw) if self.turn(item.values).shape == shape]
        if not found:
            what = f"an input of shape {tuple(self.turn(np.empty(shape)).shape)}"
            problems.append(f"it returned {kind_of(raw)} for {what}")
            return False
        self.pick, self.pick_known = found[0], True
        return True

    def _probe_masks(self, square: bool) -> None:
        """Subclasses try their masks."""

    def _describe(self) -> None:
        if self.unbatched:
            self.conventions["layout"] = ("unbatched", "probed")
            self.limits["B"] = (1,)
        if self.weights_pick is not None:
            self.probed("result", "(output, weights)" + (" averaged over heads" if self.averaged else ""))
        for name, mask in self.given.items():
            if mask.kind == "additive" and name in ("mask", "causal_mask"):
                self.conventions.pop("polarity", None)
            self.probed(f"{name}_kind", mask.kind)
            self.probed(f"{name}_shape", ", ".join(mask.forms))

    def says_boolean(self, name: str) -> bool:
        """Whether the author calls a mask boolean, and not additive."""
        entry, places = self.binding.entry, self.binding.arguments
        own = places[name].name
        others = [places[a.name].name for a in self.role.arguments if a.kind == "mask" and a.name in places]
        annotation = next((p["annotation"] for p in self.binding.parameters if p["name"] == own), "")
        others = [other for other in others if other != own]
        return said.is_boolean(str(entry.get("doc", "")), own, others, annotation)

    def try_masks(self, name: str, square: bool, patterns: Sequence[np.ndarray], sees: Any) -> None:
        """Find the kinds and shapes that the mask argument ``name`` takes.

        ``sees(allowed)`` gives (changed inputs, rows) where a change of the inputs must not show.
        """
        if name not in self.binding.arguments or name in self.given:
            return
        inputs = self.probe_inputs(square)
        if self.unbatched:
            inputs, patterns = _row(inputs, 0), [pattern[:1] for pattern in patterns]
        mask = self.given.setdefault(name, GivenMask(self.polarity_of(name)))
        slips: list[bool] = []

        def call(values: np.ndarray, given: Inputs = inputs) -> np.ndarray | None:
            try:
                raw = self.send([self.encode(given, {name: self.array(values)})])[0]
                item = at(raw, self.pick)
            except (CallFailed, OutOfDomain) as error:
                if mask.kind == "boolean":
                    slips.append(isinstance(error, CallFailed) and error.is_slip)
                return None
            if not isinstance(item, wire.Array) or item.values.dtype.kind != "f":
                slips.append(False)
                return None
            found = self.from_own([item.values])
            return found if found.shape == inputs[self.sequences[0]].shape else None

        try:
            plain: np.ndarray | None = self.run(inputs)["output"]
        except (CallFailed, OutOfDomain):
            plain = None

        def right(output: np.ndarray, allowed: np.ndarray) -> bool:
            """What is hidden has no effect, and the mask changes something."""
            changed, rows = sees(inputs, allowed)
            if isinstance(rows, np.ndarray):
                rows = rows[: len(output)]
            last = self.last_calls[-1]
            place = self.binding.arguments[name]
            sent = last.kwargs.get(place.name)
            if sent is None:
                return False
            after = call(sent.values, changed)
            if after is None or not np.isfinite(output[rows]).all():
                return False
            hidden = bool(np.abs(after - output)[rows].max() < 1e-6)
            return hidden and (plain is None or bool(np.abs(plain - output).max() > 1e-9))

        kinds = tuple(k for k in KINDS if k != "additive") if self.says_boolean(name) else KINDS
        heads = inputs.case["h"]
        found = find_forms(mask, patterns, call, right, heads, kinds)
        if not found and slips and all(slips):  # with whatever mask: the claims shall see it
            mask.forms = list(FORMS)
        elif not found:
            self.given.pop(name)
        else:
            _of_keys_alone(mask, self.binding.arguments[name].name, str(self.binding.entry.get("doc", "")))

    def polarity_of(self, name: str) -> str:
        """``allow`` or ``block`` for a mask argument."""
        return self.convention("polarity") or "allow"

    @property
    def width(self) -> int:
        """The width of the model in probes."""
        return self.sizes["h"] * self.sizes["d"]

    # layout

    def turn(self, values: np.ndarray) -> np.ndarray:
        """(B, T, d) as the candidate wants it, or back."""
        if self.convention("layout") != "sequence_first" or values.ndim != 3:
            return values
        return np.ascontiguousarray(values.swapaxes(0, 1))

    def to_own(self, values: np.ndarray) -> np.ndarray:
        """A canonical (B, T, d) array in the candidate's layout."""
        return values[0] if self.unbatched else self.turn(values)

    def from_own(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """The canonical array from what came back of one call, or of one call per batch row."""
        return np.stack(parts) if self.unbatched else self.turn(parts[0])

    # calling

    def encode(self, inputs: Inputs, masks: Mapping[str, wire.Array], **options: Any) -> Call:
        """One call; ``masks`` by argument."""
        given: dict[str, Any] = {
            name: self.array(self.to_own(inputs[name]))
            for name in self.sequences
            if name in self.binding.arguments
        }
        for name, mask in self.open.items():
            if name not in masks:
                given[name] = self.array(mask.encode(self._everything(name, inputs), inputs.case.get("h", 1)))
        given.update(masks)
        given.update(self.extra(inputs))
        return self.make_call(inputs.case, given, self.double, **options)

    def _everything(self, name: str, inputs: Inputs) -> np.ndarray:
        """A canonical mask that hides nothing: over the first sequence, or over what is attended to."""
        B, T = inputs[self.sequences[0]].shape[:2]
        over = self.sequences[-1] if name.startswith("memory") or "x" not in self.sequences else "x"
        return np.ones((B, T, inputs[over].shape[1]), dtype=bool)

    def extra(self, inputs: Inputs) -> Mapping[str, Any]:
        """Further arguments of a call."""
        return {}

    def masks_for(self, inputs: Inputs) -> dict[str, wire.Array]:
        """The masks of a case, by argument."""
        return {}

    def calls_for(self, inputs: Inputs) -> list[Call]:
        first = inputs[self.sequences[0]]
        if self.convention("wrapped") in ("post", "pre") and first.shape[-1] < 4:
            raise OutOfDomain("a norm over so few features leaves hardly anything of what went in")
        if not self.unbatched:
            return [self.encode(inputs, self.masks_for(inputs))]
        return [self.encode(row, self.masks_for(row)) for row in (_row(inputs, b) for b in range(len(first)))]

    def read(self, answers: Sequence[Any], inputs: Inputs) -> Results:
        parts = []
        for raw in answers:
            item = at(raw, self.pick)
            if not isinstance(item, wire.Array) or item.values.dtype.kind != "f":
                raise WrongResult(f"it returned {kind_of(raw)}; expected the output, as it returned before")
            parts.append(item.values)
        if len({part.shape for part in parts}) != 1:
            raise WrongResult("its output has another shape for another row of the batch")
        results: Results = {"output": self.from_own(parts)}
        if self.weights_pick is not None:
            items = [at(raw, self.weights_pick) for raw in answers]
            if all(isinstance(item, wire.Array) for item in items):
                values = [item.values for item in items]
                same = len({v.shape for v in values}) == 1
                if same:
                    results["weights"] = np.stack(values) if self.unbatched else values[0]
        return results

    def lengths(self, allowed: np.ndarray) -> wire.Array:
        """(B,) the number of real rows, where the mask (B, T, S) says that and no more."""
        real = allowed[:, 0].sum(axis=1)
        if not (allowed == (np.arange(allowed.shape[2]) < real[:, None, None])).all():
            raise OutOfDomain("lengths cannot say this")
        return self.array(real.astype(np.int64))

    def run(self, inputs: Inputs) -> Results:
        """As ever; but heads whose number is fixed inside need not divide every width."""
        try:
            return self.run_up_to_capacity(inputs)
        except CallFailed as error:
            width = inputs.case["h"] * inputs.case["d"]
            fixed = "d_model" in self.binding.constructor and "n_heads" not in self.binding.constructor
            if fixed and self.pick_known and error.kind == "exception" and width % COMMON_HEADS:
                raise OutOfDomain(f"with a width of {width}: {error}") from None
            raise

    def with_convention(self, name: str, value: str) -> Subject:
        other = super().with_convention(name, value)
        assert isinstance(other, LayerSubject)
        other.matches = {}
        other.given = {n: replace(mask, polarity=other.polarity_of(n)) for n, mask in self.given.items()}
        return other

    # weights

    def apart(self, variant: str) -> LayerSubject:
        """The same layer as an object of its own, whose parameters may be overwritten."""
        other = type(self)(self.session, self.binding)
        other.__dict__.update({**self.__dict__, "remembered": {}, "variant": variant, "matches": {}})
        return other

    def object_for(self, case: Mapping[str, Any]) -> Built:
        return self.built(case, self.double)

    def weights_of(self, case: Mapping[str, Any], repeated: bool = False) -> list[dict[str, Any]]:
        """The weights of the object for a case: what is registered or trainable; without a module, every array.

        To be asked for an object that was not called yet: calls may leave arrays behind.
        """
        built = self.object_for(Case(case))
        try:
            items = self.session.parameters(built, repeated=repeated)
        except CandidateError as error:  # weights that take their shape from the first call
            if "uninitialized" not in str(error).lower():
                raise
            self.send(self.calls_for(self.probe_inputs(True, case))[:1])
            items = self.session.parameters(built, repeated=repeated)
        if self.binding.entry["module_class"]:
            return [item for item in items if item["kind"] == "parameter" or item["trainable"]]
        return [item for item in items if item["value"].values.ndim]


def _of_keys_alone(mask: GivenMask, name: str, words: str) -> None:
    """A mask of padding says which keys are none; it need not take what differs from query to query."""
    own = [form for form in mask.forms if form in OF_KEYS]
    if own and re.search("pad", name, re.IGNORECASE):
        mask.forms = own
    by_name = not own and plain(name).endswith("keypaddingmask")  # a name of one meaning
    if by_name or (re.search("pad", name, re.IGNORECASE) and said.says_one_row(words, name)):
        mask.kind, mask.forms = ("boolean" if by_name else mask.kind), ["(B, S)"]


def _row(inputs: Inputs, b: int) -> Inputs:
    """One batch row of a case."""
    given = {
        name: value[b : b + 1] if isinstance(value, np.ndarray) and value.ndim >= 2 else value
        for name, value in inputs.items()
    }
    return Inputs(inputs.case, given)


class NormSubject(LayerSubject):
    """LayerNorm, as a layer or as a function of the gain and the bias."""

    told_by_answers = True
    shaped = False  # its constructor takes the shape (d,) in place of d

    def __init__(self, session: Session, binding: Binding) -> None:
        super().__init__(session, binding)
        if self.conventions.get("norm_kind", ("", ""))[1] != "declared" and self._is_called_rms():
            self.conventions["norm_kind"] = ("rms", "by its author's words")

    def _is_called_rms(self) -> bool:
        """Whether code or words call it an RMSNorm, and neither its name nor any word a LayerNorm."""
        words = str(self.binding.entry.get("doc", ""))
        rest = RMS_NORM.sub(" ", words)
        named = LAYER_NORM.search(self.binding.entry["name"]) or LAYER_NORM.search(rest)
        return not named and (rest != words or self.asks_for_rms)

    def probe(self) -> None:
        """A parameter that is called a shape may take (d,) alone."""
        super().probe()
        place = self.binding.constructor.get("d_model")
        if self.problem and place is not None and place.name.endswith("shape"):
            problem, self.problem, self.shaped = self.problem, "", True
            super().probe()
            self.shaped, self.problem = not self.problem, problem if self.problem else ""

    def _constant(self, argument: Argument, case: Mapping[str, Any]) -> Any:
        value = super()._constant(argument, case)
        return (value,) if self.shaped and argument.name == "d_model" else value

    def extra(self, inputs: Inputs) -> Mapping[str, Any]:
        width = inputs["x"].shape[-1]
        given = {"gamma": np.ones(width), "beta": np.zeros(width)}
        return {n: self.array(v) for n, v in given.items() if n in self.binding.arguments}

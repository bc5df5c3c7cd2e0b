"""The weight method: recompute a layer with its own weights, whatever it names, splits and orders them.

A layer's weights are told apart by what they do.  Both the candidate and the reference are put into a *base
state* in which layout cannot matter (``base_state.py``).  There the outputs must agree.  Then the gradient of several
projections of the output is taken with respect to every single number: numbers that do the same have the
same gradients.  What heads (and other interchangeable units) still have in common is broken by moving one
number on both sides, and looking again.  Last, random weights everywhere, carried over by this matching,
must give equal outputs in float64: only that comparison counts.

A parameter that moves nothing (a key's bias) stays unmatched and is random in the end like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .base_state import Rule, is_gain
from .cases import Inputs
from .numbers import Numbers, classes, pairs, sum_of_two
from .own_layer import OwnLayer

if TYPE_CHECKING:
    from torch import Tensor, nn

PROJECTIONS = 8  # projections of the output whose gradients tell numbers apart
LOOKED_UP = ("embed", "positions")  # tables of the reference of which an input reads but some rows
EXACT = 2e-7  # two orders of operations in float64, or a table that was made in float32
CLOSE = 5e-6  # a float32 constant in a float64 layer; every known fault is a hundred times farther off
LOOSE = 1e-4  # for naming a fault, where the norm's ε is not known
ROUNDS = 40  # of breaking what interchangeable units have in common


@dataclass(frozen=True)
class Blueprint:
    """The reference in one of the forms that a correct layer may have.

    ``conventions`` says which form, for the report; ``fault`` names a known mistake instead.
    """

    module: nn.Module
    run: Callable[[nn.Module, Inputs], Tensor]
    conventions: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""
    mutant: str = ""  # of the fault, where it is one of them
    weights: Callable[[nn.Module, Inputs], Tensor] | None = None  # of attention, (B, h, T, S)
    details: Mapping[str, Any] = field(default_factory=dict)  # how the module was built
    together: tuple[int, ...] = (0, 1)  # how packed weights may lie (see Rule)


class Undetermined(Exception):
    """Whether the layer is right cannot be told: the message says what was not recognised."""


class Grouped(Undetermined):
    """Heads share keys and values, as in grouped-query attention, which is a form of its own."""


class Departs(Exception):
    """The layer is not the reference; the message says what shows it."""

    def __init__(
        self,
        what: str,
        expected: Any = None,
        observed: Any = None,
        known: bool = False,
        mutant: str = "",
        part: str = "",
    ) -> None:
        super().__init__(what)
        self.what, self.expected, self.observed = what, expected, observed
        self.known = known  # it follows a known mistake
        self.mutant = mutant  # which one, if it is a mutant's: its id, or "id, place"
        self.part = part  # of a block: the first that differs by itself


class Idle(Exception):
    """The probe leaves a number of the reference without any effect: another probe is needed."""


@dataclass
class Matched:
    """A candidate and the reference that computes the same with the candidate's weights, both loaded."""

    layer: OwnLayer
    blueprint: Blueprint
    single: bool  # the candidate computes in float32

    def expected(self, inputs: Inputs) -> np.ndarray:
        return self.blueprint.run(self.blueprint.module, inputs).detach().numpy()

    def weights(self, inputs: Inputs) -> np.ndarray | None:
        """The attention weights (B, h, T, S), where the layer is one attention."""
        weights = self.blueprint.weights
        return None if weights is None else weights(self.blueprint.module, inputs).detach().numpy()

    def gradient(self, inputs: Inputs, wrt: Sequence[str], cotangent: np.ndarray) -> list[np.ndarray]:
        """The reference's gradients of ⟨output, cotangent⟩ with respect to inputs."""
        import torch

        tensors = {name: torch.from_numpy(inputs[name]).double().requires_grad_(True) for name in wrt}
        same = {  # one array may stand in several places: the keys of self-attention are its queries
            other: tensors[name] for name in wrt for other in inputs if inputs[other] is inputs[name]
        }
        output = self.blueprint.run(self.blueprint.module, inputs.replaced(**same))
        gradients = torch.autograd.grad(
            (output * torch.from_numpy(cotangent)).sum(), list(tensors.values()), allow_unused=True
        )
        return [
            np.zeros(inputs[name].shape) if g is None else g.numpy()
            for name, g in zip(wrt, gradients, strict=True)
        ]


class _AsNeeded:
    """Blueprints, each made when it is first asked for: a reference is not built for nothing."""

    def __init__(self, source: Iterable[Blueprint]) -> None:
        self._source, self._made = iter(source), list[Blueprint]()

    def __iter__(self) -> Iterator[Blueprint]:
        yield from self._made
        for blueprint in self._source:
            self._made.append(blueprint)
            yield blueprint

    def __getitem__(self, n: int) -> Blueprint:
        while len(self._made) <= n:
            self._made.append(next(self._source))
        return self._made[n]


Faults = Callable[[Sequence[Blueprint]], Iterable[Blueprint]]


class Matcher:
    """Matches one layer with the blueprints of its role."""

    def __init__(
        self, layer: OwnLayer, probe: Inputs, base: Rule, rng: np.random.Generator, whole: str
    ) -> None:
        self.layer, self.probe, self.base, self.rng, self.whole = layer, probe, base, rng, whole
        self.own, self.single = layer.weights, layer.single
        if not any(
            is_gain(weight.value) for weight in self.own
        ):  # its norms have no gains: as if they were 1
            self.base = replace(base, gain=np.ones_like(base.gain))
        self.unknown: list[str] = []  # weights whose shape says nothing
        self.state: dict[str, np.ndarray] = {}  # what all others hold
        self._values: dict[Any, tuple[Rule, Tensor]] = {}

    def match(self, forms: Iterable[Blueprint], faults: Faults, rarer: Iterable[Blueprint] = ()) -> Matched:
        """Find the blueprint that the layer follows, and carry random weights over.

        ``rarer`` forms are tried where none of the ``forms`` fits.  ``faults`` makes blueprints with a known
        mistake each, given the right ones, the nearest first.

        Raises:
            Departs: the layer computes something else.
            Undetermined: it may be right, but a parameter was not recognised.
        """
        blueprints = _AsNeeded(forms)
        found = self._by_name(blueprints)
        if found is not None:
            return found
        packed = {2 * self.base.width, 3 * self.base.width}
        lies = any(n in packed for p in self.own for n in p.value.shape)
        outputs: dict[int, np.ndarray] = {}  # of the candidate in the base state, as packed weights may lie

        def output(together: int) -> np.ndarray:
            if together not in outputs:
                self._set(replace(self.base, together=together))
                outputs[together] = self.layer.output(self.probe)
            return outputs[together]

        nearest: list[Blueprint] = []
        for group in (blueprints, rarer):
            tried = []
            for blueprint in group:
                expected = self._in_base(blueprint)
                ways = blueprint.together if lies else (0,)
                tried.append([(self._far(output(way), expected), way, blueprint) for way in ways])
                if min(row[0] for row in tried[-1]) < EXACT:
                    break
            if not tried:
                continue
            far, way, blueprint = min((row for rows in tried for row in rows), key=lambda row: row[0])
            if EXACT < far < 0.02:
                far = self._fit_epsilon(blueprint, output(way), far)
            if far <= (2e-5 if self.single else CLOSE):
                self.base = replace(self.base, together=way)
                self._set(self.base)
                self._prepare(blueprint.module, self.base)
                return self._carry_over(blueprint)
            nearest += [rows[0][2] for rows in sorted(tried, key=lambda rows: rows[0][0])]
        raise self._departs(nearest, output(0), faults)

    def _by_name(self, blueprints: _AsNeeded) -> Matched | None:
        """Whoever names and shapes everything as the reference does needs no telling apart: a short cut."""
        own = {p.name: p.value.shape for p in self.own}
        if {n: tuple(p.shape) for n, p in blueprints[0].module.named_parameters()} != own:
            return None
        self.state = {}
        values = {p.name: self._random(p.value.shape, is_gain(p.value)) for p in self.own}
        self.layer.load(values)
        observed = self.layer.output(self.probe)
        for blueprint in blueprints:
            blueprint.module.double()
            _load(blueprint.module, values)
            if self._far(observed, self._run(blueprint)) < EXACT:
                return Matched(self.layer, blueprint, self.single)
        return None

    # the base state

    def _set(self, base: Rule, zero: Sequence[str] = ()) -> None:
        self.unknown, self.state = [], {}
        for held in self.own:
            ones = is_gain(held.value)
            value = base.value(held.value.shape, ones)
            if value is None:
                if held.registered:
                    self.unknown.append(f"{held.name} {list(held.value.shape)}")
                continue
            self.state[held.name] = value * (base.kind(held.value.shape, ones) not in zero)
        self.layer.load(self.state)

    def _prepare(self, module: nn.Module, base: Rule, zero: Sequence[str] = ()) -> None:
        import torch

        module.double()
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.copy_(self._in_state(base, tuple(parameter.shape), _is_gain(name), tuple(zero)))

    def _in_state(self, base: Rule, shape: tuple[int, ...], ones: bool, zero: tuple[str, ...]) -> Tensor:
        """A parameter's value in the base state, made once."""
        import torch

        key = (id(base), shape, ones, zero)
        known = self._values.get(key)
        if known is None:
            value = base.value(shape, ones)
            assert value is not None, shape
            made = torch.from_numpy(np.array(value * (base.kind(shape, ones) not in zero)))
            known = self._values[key] = (base, made)  # the rule is kept, so that its id stays its own
        return known[1]

    def _run(self, blueprint: Blueprint, inputs: Inputs | None = None) -> np.ndarray:
        inputs = self.probe if inputs is None else inputs
        return blueprint.run(blueprint.module, inputs).detach().numpy()

    @staticmethod
    def _far(observed: np.ndarray, expected: np.ndarray) -> float:
        """The largest difference, beside the largest entry."""
        if observed.shape != expected.shape or not np.isfinite(observed).all():
            return np.inf
        return float(np.abs(observed - expected).max()) / max(1.0, float(np.abs(expected).max()))

    def _fit_epsilon(self, blueprint: Blueprint, observed: np.ndarray, least: float) -> float:
        """The norms' ε that fits best: it is the author's choice.  Returns the distance with it."""
        norms: list[Any] = [m for m in blueprint.module.modules() if hasattr(m, "eps")]
        before = [(norm.eps, norm.outside) for norm in norms]

        def far(power: float) -> float:
            for norm in norms:
                norm.eps = 10.0**power
            return self._far(observed, self._in_base(blueprint))

        for outside in (False, True):
            for norm in norms:
                norm.outside = outside
            best = min(np.arange(-8.0, -2.6, 0.5), key=far)
            low, high = best - 0.5, best + 0.5
            for _ in range(50):
                one, other = low + (high - low) * 0.382, low + (high - low) * 0.618
                low, high = (low, other) if far(one) < far(other) else (one, high)
            fitted = far((low + high) / 2)
            if fitted < 0.01 * least:
                return fitted
        for norm, (eps, outside) in zip(norms, before, strict=True):
            norm.eps, norm.outside = eps, outside
        return least

    # telling what is wrong

    def _departs(self, nearest: Sequence[Blueprint], observed: np.ndarray, faults: Faults) -> Exception:
        """What is wrong, as an exception: by known mistakes, and by parts at zero."""
        self._set(self.base)
        if self.unknown:
            return Undetermined(f"not recognised among its parameters: {', '.join(self.unknown[:6])}")
        right = self._far(observed, self._in_base(nearest[0]))
        alike = [  # one that is no nearer than what is right is none
            fault
            for fault in faults(nearest)
            if self._far(observed, self._in_base(fault)) < min(LOOSE, 0.1 * right)
        ]
        if alike:
            fault = self._told_apart(alike)
            what = f"{self.whole} behaves exactly like one with this mistake: {fault.fault}"
            return Departs(what, known=True, mutant=fault.mutant)
        part, where = self._where(nearest)
        rows = observed.shape[1] if observed.ndim == 3 else len(observed)
        what = (
            f"{self.whole} does not compute what the reference does with the same weights, "
            f"here on {rows} rows{where}"
        )
        return Departs(what, self._in_base(nearest[0]), observed, part=part)

    def _told_apart(self, alike: Sequence[Blueprint]) -> Blueprint:
        """Of mistakes that are the same in the base state, the first that is the same with random weights too."""
        for fault in alike if len({fault.mutant for fault in alike}) > 1 else ():
            self._set(self.base)
            self._prepare(fault.module, self.base)
            try:
                found = self._carry_over(fault)
                if self._far(self.layer.output(self.probe), found.expected(self.probe)) < LOOSE:
                    return fault
            except (Departs, Undetermined, Idle):
                continue
        return alike[0]

    def _in_base(self, blueprint: Blueprint) -> np.ndarray:
        """What a blueprint gives in the base state; empty for a mistake that needs other sizes."""
        self._prepare(blueprint.module, self.base)
        try:
            return self._run(blueprint)
        except RuntimeError:
            return np.empty(0)

    def _where(self, blueprints: Sequence[Blueprint]) -> tuple[str, str]:
        """The first part of a block that differs while the others are at zero, and the same in words."""
        kinds = {self.base.kind(weight.value.shape, is_gain(weight.value)) for weight in self.own}
        if not {"attention", "feed-forward"} <= kinds or "x" not in self.probe:
            return "", ""
        stages = [
            ("norms and residuals", ("attention", "feed-forward"), self.probe),
            ("the feed-forward", ("attention",), self.probe),
            ("the self-attention", ("feed-forward",), self.probe),
        ]
        if "memory" in self.probe:
            quiet = self.probe.replaced(memory=np.zeros_like(self.probe["memory"]))
            stages[2] = (*stages[2][:2], quiet)
            stages.append(("the cross-attention", ("feed-forward",), self.probe))
        differing = []
        for part, zero, inputs in stages:
            self._set(self.base, zero)
            observed = self.layer.output(inputs)
            if not any(self._agrees(observed, blueprint, zero, inputs) for blueprint in blueprints):
                off = " and ".join(zero) + " weights" + (", and memory," * (inputs is not self.probe))
                differing.append((part, f"(with all {off} at zero it still differs)"))
                if len(zero) > 1:
                    break
        if not differing:
            return "", ": each part alone is right, so the fault lies in how they are put together"
        part, seen = differing[0]
        if part == stages[0][0]:
            return part, f": the fault lies in {part} {seen}"
        if len(differing) == len(stages) - 1:  # the norms before the parts show only where the parts do
            return (
                part,
                ": each part alone differs, so the fault lies in all of them, or in the norms or residuals",
            )
        return part, f": the fault lies in {part}, or in a norm or a residual {seen}"

    def _agrees(
        self, observed: np.ndarray, blueprint: Blueprint, zero: Sequence[str], inputs: Inputs
    ) -> bool:
        self._prepare(blueprint.module, self.base, zero)
        return self._far(observed, self._run(blueprint, inputs)) < LOOSE

    # matching number by number

    def _carry_over(self, blueprint: Blueprint) -> Matched:
        module = blueprint.module
        reference = Numbers([(name, tuple(p.shape)) for name, p in module.named_parameters()])
        candidate = Numbers([(p.name, p.value.shape) for p in self.own if p.name in self.state])
        state_r = {name: p.detach().numpy().copy() for name, p in module.named_parameters()}
        state_c = {name: value.copy() for name, value in self.state.items()}
        cotangents = self.rng.normal(0.0, 1.0, (PROJECTIONS, *self._run(blueprint).shape))
        labels_c = np.zeros(candidate.size, dtype=np.int64)
        labels_r = np.zeros(reference.size, dtype=np.int64)
        silent_c, silent_r = np.zeros(candidate.size, dtype=bool), np.zeros(reference.size, dtype=bool)
        before: dict[str, int] = {}
        for turn in range(ROUNDS):
            prints_c = candidate.flat(self.layer.sensitivities(self.probe, candidate.names, cotangents))
            prints_r = reference.flat(self._gradients(blueprint, cotangents))
            labels_c, labels_r = classes(prints_c, prints_r, labels_c, labels_r, self._tolerance(prints_r))
            if turn == 0:
                silent_c, silent_r = self._silent(prints_c), self._silent(prints_r)
                idle = {reference.name_of(int(n)) for n in np.flatnonzero(silent_r)}
                if any(not name.endswith("w_k.bias") and not name.startswith(LOOKED_UP) for name in idle):
                    raise Idle
                self._recognised(candidate, reference, prints_c, prints_r, labels_c, labels_r, silent_c)
            ambiguous = self._ambiguous(reference, labels_r, silent_r)
            if not ambiguous:
                break
            moved = self._individualise(candidate, reference, labels_c, labels_r, silent_c, before, ambiguous)
            before = {part: len(found) for part, found in ambiguous.items()}
            # What is told apart already gets values of its own, which tells apart what depends on it.
            known = pairs(labels_c, labels_r, silent_c, silent_r)
            for place_c, place_r in known:
                by = float(self.rng.normal(0.0, 0.1))
                candidate.move(state_c, place_c, by)
                reference.move(state_r, place_r, by)
            for place_c, place_r in moved:
                candidate.move(state_c, place_c, 0.37)
                reference.move(state_r, place_r, 0.37)
            self.layer.load(state_c)
            _load(module, state_r)
        else:
            raise Undetermined("its weights could not be told apart")
        return self._compare(blueprint, candidate, reference, labels_c, labels_r, silent_c)

    def _gradients(self, blueprint: Blueprint, cotangents: np.ndarray) -> list[np.ndarray]:
        import torch

        parameters = list(blueprint.module.parameters())
        output = blueprint.run(blueprint.module, self.probe)
        rows = [
            torch.autograd.grad(
                (output * torch.from_numpy(c)).sum(), parameters, retain_graph=True, allow_unused=True
            )
            for c in cotangents
        ]
        return [
            np.stack([np.zeros(p.shape) if row[n] is None else row[n].numpy() for row in rows])
            for n, p in enumerate(parameters)
        ]

    def _tolerance(self, prints: np.ndarray) -> float:
        return (2e-4 if self.single else 1e-6) * float(np.abs(prints).max())

    def _silent(self, prints: np.ndarray) -> np.ndarray:
        """Numbers that move nothing."""
        return np.abs(prints).max(axis=1) <= (1e-4 if self.single else 1e-8) * np.abs(prints).max()

    def _recognised(
        self,
        candidate: Numbers,
        reference: Numbers,
        prints_c: np.ndarray,
        prints_r: np.ndarray,
        labels_c: np.ndarray,
        labels_r: np.ndarray,
        silent: np.ndarray,
    ) -> None:
        """Every number of the candidate does what some number of the reference does."""
        strange = ~np.isin(labels_c, labels_r) & ~silent
        if not strange.any():
            return
        grouped = ""
        for name in dict.fromkeys(candidate.name_of(int(n)) for n in np.flatnonzero(strange)):
            first = next(int(n) for n in np.flatnonzero(strange) if candidate.name_of(int(n)) == name)
            shared = sum_of_two(prints_c[first], prints_r, labels_r, self._tolerance(prints_r))
            if shared is None:
                break
            one, other = (reference.name_of(n) for n in shared)
            if one != other or not _slot(one).startswith(("the key projection", "the value projection")):
                parts = f"{_slot(one)} and as {_slot(other)}" if one != other else f"{_slot(one)} twice"
                raise Departs(
                    f"its parameter {name} serves as {parts}; each has weights of its own", known=True
                )
            grouped = grouped or name
        else:
            raise Grouped(f"its parameter {grouped} serves several heads")
        raise Undetermined(f"its parameter {name} does what no parameter of the reference does")

    @staticmethod
    def _ambiguous(reference: Numbers, labels: np.ndarray, silent: np.ndarray) -> dict[str, list[int]]:
        """For each part of the layer the first of those numbers whose like stands elsewhere too."""
        values, counts = np.unique(labels[~silent], return_counts=True)
        found: dict[str, list[int]] = {}
        for label in values[counts > 1]:
            place = int(np.flatnonzero((labels == label) & ~silent)[0])
            found.setdefault(_part(reference.name_of(place)), []).append(place)
        return found

    @staticmethod
    def _individualise(
        candidate: Numbers,
        reference: Numbers,
        labels_c: np.ndarray,
        labels_r: np.ndarray,
        silent_c: np.ndarray,
        before: Mapping[str, int],
        ambiguous: Mapping[str, list[int]],
    ) -> list[tuple[int, int]]:
        """One number for each part that is as ambiguous as before: any of its like will do, on either side.

        Where the last look told more than the one before, nothing is free any more to be chosen: what was
        moved then goes on telling numbers apart.
        """
        moved = []
        for part, places in ambiguous.items():
            if before.get(part, len(places)) != len(places):
                continue
            # A query's number changes all weights of its head, and so tells all else of that head.
            place = min(places, key=lambda n: ("w_q.weight" not in reference.name_of(n), n))
            likes = np.flatnonzero((labels_c == labels_r[place]) & ~silent_c)
            if len(likes):
                moved.append((int(likes[0]), place))
        return moved

    def _compare(
        self,
        blueprint: Blueprint,
        candidate: Numbers,
        reference: Numbers,
        labels_c: np.ndarray,
        labels_r: np.ndarray,
        silent: np.ndarray,
    ) -> Matched:
        """Random weights everywhere, carried over to the reference."""
        values = {
            held.name: self._random(held.value.shape, is_gain(held.value))
            for held in self.own
            if held.name in self.state
        }
        flat = candidate.join(values)
        by_label = {int(label): flat[n] for n, label in enumerate(labels_c) if not silent[n]}
        module = blueprint.module
        carried = np.array([by_label.get(int(label), np.nan) for label in labels_r])
        start = reference.join(
            {n: np.full(p.shape, float(_is_gain(n))) for n, p in module.named_parameters()}
        )
        _load(module, reference.split(np.where(np.isnan(carried), start, carried)))
        self.layer.load(values)
        return Matched(self.layer, blueprint, self.single)

    def _random(self, shape: tuple[int, ...], ones: bool) -> np.ndarray:
        kind = self.base.kind(shape, ones)
        if kind == "gain":
            return self.rng.uniform(0.5, 1.5, shape)
        scale = 0.3 if kind == "vector" else 1.2 * self.base.width**-0.5
        return self.rng.normal(0.0, scale, shape)


def _load(module: nn.Module, values: Mapping[str, np.ndarray]) -> None:
    import torch

    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.from_numpy(np.array(values[name])))


def _is_gain(name: str) -> bool:
    """Whether a parameter of the reference is the gain of a norm."""
    return "norm" in name and name.endswith("weight")


def _part(name: str) -> str:
    return name.rsplit(".", 2)[0] if name.count(".") > 1 else ""


WORDS = {
    "w_q": "the query projection",
    "w_k": "the key projection",
    "w_v": "the value projection",
    "w_o": "the output projection",
    "expand": "the first layer",
    "contract": "the second layer",
}


def _slot(name: str) -> str:
    """A parameter of the reference in words."""
    parts = name.split(".")
    if "norms" in parts:
        return (
            f"norm {int(parts[parts.index('norms') + 1]) + 1}'s {'gain' if parts[-1] == 'weight' else 'bias'}"
        )
    word = next((WORDS[p] for p in parts if p in WORDS), name)
    place = {
        "self_attention": " of the self-attention",
        "cross_attention": " of the cross-attention",
        "feed_forward": " of the feed-forward",
    }
    where = next((place[p] for p in parts if p in place), "")
    layer = f" in layer {int(parts[1]) + 1}" if parts[0] == "blocks" else ""
    return word + where + layer + ("'s bias" if parts[-1] == "bias" else "")

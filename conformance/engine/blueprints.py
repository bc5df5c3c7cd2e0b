"""The reference of each role with weights, in the forms that a correct layer may have, for the weight method."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from ...reference import faults
from ...reference.baseline import layers
from ...reference.baseline.positions import positional_encoding
from ...reference.forms import FAULTS, Form, Stack
from ..candidates.layers import is_ones
from .cases import Case, Inputs, OutOfDomain
from .matching import (
    Blueprint,
    Departs,
    Held,
    Idle,
    Layer,
    Matched,
    Matcher,
    Undetermined,
    inner_width,
    rule,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..candidates.layers import LayerSubject
    from ..candidates.models import ModelSubject

# ε of the norm, and whether it is added to the standard deviation: what is common comes first.
EPSILONS: tuple[Mapping[str, Any], ...] = (
    {"eps": 1e-5},
    {"eps": 1e-6},
    {"eps": 1e-12},
    {"eps": 1e-6, "outside": True},
    {"eps": 1e-8},
    {"eps": 1e-5, "outside": True},
    {"eps": 1e-7},
    {"eps": 1e-9},
    {"eps": 1e-10},
    {"eps": 1e-3},
    {"eps": 0.0},
    {"eps": 1e-8, "outside": True},
)


class CandidateLayer(Layer):
    """A subject's layer, built for itself, as the matcher sees it."""

    def __init__(self, subject: LayerSubject, case: Case) -> None:
        self.subject = subject.apart("weights")
        self.built = self.subject.object_for(case)
        self.parameters: Sequence[Held] = [
            Held(p["name"], p["value"].values, p["kind"], p["alias"], p["value"].dtype)
            for p in self.subject.weights_of(case)
        ]
        self.held = subject.session.parameters(self.built)
        self._container = {p.name: p.dtype for p in self.parameters}

    def load(self, values: Mapping[str, np.ndarray]) -> None:
        given = {
            name: self.subject.array(np.ascontiguousarray(v.astype(self._container[name])))
            for name, v in values.items()
        }
        self.subject.session.load(self.built, given)
        self.subject.remembered.clear()

    def output(self, inputs: Inputs) -> np.ndarray:
        return self.subject.run(self.subject.default(inputs))["output"].astype(np.float64)

    def sensitivities(self, inputs: Inputs, names: Sequence[str], cotangents: np.ndarray) -> list[np.ndarray]:
        (call,) = self.subject.calls_for(self.subject.default(inputs))
        own = np.ascontiguousarray(np.stack([self.subject.to_own(c) for c in cotangents]))
        return self.subject.session.sensitivities(call, self.subject.pick, names, self.subject.array(own))


def tensor(values: Any) -> Tensor:
    import torch

    return (
        values if isinstance(values, torch.Tensor) else torch.from_numpy(np.array(values, dtype=np.float64))
    )


def optional(values: Any) -> Tensor | None:
    """A boolean mask, or None."""
    import torch

    return None if values is None else torch.from_numpy(np.array(values))


def run_attention(causal: bool, part: int, module: nn.Module, inputs: Inputs) -> Tensor:
    """Attention with several heads: ``query``, ``key``, ``value`` and ``allowed`` (B, T, S).

    ``part`` 0 is the output (B, T, d), 1 the weights (B, h, T, S).
    """
    allowed = inputs.get("allowed")
    if causal:
        allowed = np.tri(inputs["query"].shape[1], dtype=bool)[None]
    query = tensor(inputs["query"])
    key = query if inputs["key"] is inputs["query"] else tensor(inputs["key"])
    value = key if inputs["value"] is inputs["key"] else tensor(inputs["value"])
    return module(query, key, value, optional(allowed))[part]


def run_rows(module: nn.Module, inputs: Inputs) -> Tensor:
    return module(tensor(inputs["x"]))


def run_decoder_block(module: nn.Module, inputs: Inputs) -> Tensor:
    future = optional(~np.tri(inputs["x"].shape[1], dtype=bool))
    hidden, own = optional(inputs.get("hide_memory")), optional(inputs.get("hide"))
    return module(tensor(inputs["x"]), tensor(inputs["memory"]), future, hidden, own)


def run_block(module: nn.Module, inputs: Inputs) -> Tensor:
    return module(tensor(inputs["x"]), optional(inputs.get("hide")))


def wrapped(build: Callable[[], Any], run: Callable[..., Tensor]) -> Iterator[Blueprint]:
    """A layer with its residual and its norm around it."""
    for epsilon in EPSILONS:
        for first in (False, True):
            yield Blueprint(
                layers.Sublayer(build(), layers.LayerNorm(build().d_model, **epsilon), first),
                partial(run_wrapped, run),
                {"wrapped": "pre" if first else "post"},
            )


def run_wrapped(run: Callable[..., Tensor], module: Any, inputs: Inputs) -> Tensor:
    """The sublayer around the first sequence; attention over one sequence attends to what it was given."""
    name = "x" if "x" in inputs else "query"
    x = tensor(inputs[name])

    def layer(y: Tensor) -> Tensor:
        same = {n: y for n in inputs if inputs[n] is inputs[name]}
        return run(module.layer, inputs.replaced(**same))

    return module.around(x, layer)


def forms(subject: LayerSubject, case: Case, heads: Sequence[int], inner: int) -> Iterator[Blueprint]:
    """The blueprints of a role, the likely ones first."""
    from torch import nn

    width, role = case["h"] * case["d"], subject.role.id
    if role in ATTENTIONS:
        run, weights = (partial(run_attention, getattr(subject, "causal", False), part) for part in (0, 1))
        for h in heads:
            told = {"heads": str(h)} if len(heads) > 1 else {}
            if subject.convention("wrapped") in ("", "none"):
                yield Blueprint(layers.MultiHeadAttention(width, h), run, told, weights=weights)
            else:
                yield from wrapped(partial(layers.MultiHeadAttention, width, h), run)
        if getattr(subject, "form", "") == "self" and not subject.has("mask"):
            for h in heads:  # self-attention by a general name may well mask the future by itself
                own = [partial(run_attention, True, part) for part in (0, 1)]
                yield Blueprint(
                    layers.MultiHeadAttention(width, h), own[0], {"causal": "yes"}, weights=own[1]
                )
        if "n_heads" not in subject.binding.constructor:  # the lesson's one head has no output projection
            module = layers.MultiHeadAttention(width, 1)
            module.w_o = nn.Identity()  # type: ignore[assignment]
            yield Blueprint(module, run, {"heads": "1, no output projection"}, weights=weights)
        return
    if role == "feed_forward":
        build = partial(layers.FeedForward, width, inner, subject.convention("activation"))
        if subject.convention("wrapped") == "none":
            yield Blueprint(build(), run_rows)
        else:
            yield from wrapped(build, run_rows)
        return
    for build, run, told in block_builds(subject, width, heads, inner):
        yield Blueprint(build(), run, told)


def block_builds(
    subject: LayerSubject, width: int, heads: Sequence[int], inner: int
) -> Iterator[tuple[Callable[[], Any], Callable[..., Tensor], Mapping[str, str]]]:
    """How to build a block, how to run it, and the conventions that this stands for."""
    role = subject.role.id
    kinds: list[tuple[type[nn.Module], Callable[..., Tensor]]] = {
        "decoder_block": [(layers.DecoderBlock, run_decoder_block)],
        "encoder_block": [(layers.EncoderBlock, run_block)],
        "decoder_only_block": [(layers.DecoderOnlyBlock, run_block)],
    }[role]
    if role == "decoder_only_block" and not getattr(subject, "causal", True):
        kinds = [*kinds, (layers.EncoderBlock, run_block)]
    placed, how = subject.conventions["norm"]
    orders = [placed == "pre"] if how == "declared" else [False, True]
    unbiased = subject.convention("variance") == "unbiased"
    for epsilon in EPSILONS:
        for first in orders:
            for h in heads:
                for kind, run in kinds:
                    build = partial(
                        kind,
                        width,
                        h,
                        inner,
                        norm_first=first,
                        activation=subject.convention("activation"),
                        norm=partial(layers.LayerNorm, unbiased=unbiased, **epsilon),
                    )
                    yield build, run, {"norm": "pre" if first else "post"}


def known_faults(
    subject: LayerSubject, case: Case, heads: Sequence[int], inner: int, nearest: Sequence[Blueprint]
) -> Iterator[Blueprint]:
    """The reference with one mistake each, in the nearest of its forms first."""
    width, role = case["h"] * case["d"], subject.role.id
    if role in ATTENTIONS:
        run = partial(run_attention, getattr(subject, "causal", False), 0)
        for h in heads:
            build = partial(layers.MultiHeadAttention, width, h)
            for words, module in faults.attention_faults(build, role == "causal_self_attention"):
                yield Blueprint(module, run, fault=words)
    elif role == "feed_forward":
        for words, module in faults.feed_forward_faults(partial(layers.FeedForward, width, inner)):
            yield Blueprint(module, run_rows, fault=words)
    else:
        builds = {}
        for build, run, told in block_builds(subject, width, heads, inner):
            builds.setdefault((told["norm"], run), build)
        order = dict.fromkeys((blueprint.conventions["norm"], blueprint.run) for blueprint in nearest)
        for norm, run in order:
            for words, module in faults.block_faults(builds[norm, run], getattr(subject, "triangle", True)):
                yield Blueprint(module, run, fault=words)


ATTENTIONS = ("multihead_attention", "causal_self_attention", "cross_attention")
WHOLE = {
    "multihead_attention": "the layer",
    "causal_self_attention": "the layer",
    "cross_attention": "the layer",
    "feed_forward": "the feed-forward",
}


def matched(subject: LayerSubject, case: Case) -> Matched:
    """The candidate's layer of these sizes beside a reference with the same weights.

    Raises:
        Departs: it computes something else; the message says where, as far as that can be told.
        Undetermined: a parameter was not recognised, so that nothing can be said.
        CallFailed: it raised.
    """
    unit, width = case["d"], case["h"] * case["d"]
    layer = CandidateLayer(subject, case)
    inner = width
    if subject.role.id not in ATTENTIONS:
        known = "d_ff" in subject.binding.constructor
        inner = case["dff"] if known else inner_width(layer.parameters, unit, width)
    if "n_heads" in subject.binding.constructor or subject.role.id == "feed_forward":
        heads: Sequence[int] = (case["h"],)
    else:  # how many it has inside is its own affair, as long as a head is a multiple of the unit wide
        heads = [h for h in (case["h"], 1, 2, 4, 8) if width % (h * unit) == 0]
        heads = list(dict.fromkeys(heads))
    for attempt in range(8):
        rng = np.random.default_rng([attempt, case["h"], case["d"]])
        base = rule(rng, unit, width, inner)
        whole = WHOLE.get(subject.role.id, "the block")
        matcher = Matcher(layer, _probe(subject, case, rng), base, rng, whole)
        try:
            return matcher.match(
                forms(subject, case, heads, inner),
                lambda nearest: known_faults(subject, case, heads, inner, nearest),
            )
        except Idle:
            continue
        except Departs as error:
            strange = [] if error.known else _strange(layer.held)
            if strange:
                raise OutOfDomain(f"it computes with constants of its own: {', '.join(strange)}") from None
            raise
    raise Undetermined("no input was found on which all of its weights matter")


def _strange(held: Sequence[Mapping[str, Any]]) -> list[str]:
    """Buffers that are neither a mask nor a number: slopes, angles and the like, which the reference has not."""
    found = []
    for item in held:
        values = item["value"].values
        mask = np.isin(values, (0.0, 1.0)).all() or not np.isfinite(values).all() or (values <= 0).all()
        if item["kind"] == "buffer" and values.ndim and values.size and not mask:
            found.append(item["name"])
    return found


def _probe(subject: LayerSubject, case: Case, rng: np.random.Generator) -> Inputs:
    """One row; T = 6, so that each unit of a feed-forward is active somewhere, and S = 3 where there is a memory."""
    width = case["h"] * case["d"]
    T = 6
    S = T if getattr(subject, "form", "") == "self" else 3
    small = case.replaced(B=1, T=T, S=S)
    arrays = {
        name: rng.normal(0.0, 1.0, (1, S if name in ("memory", "key", "value") else T, width))
        for name in subject.sequences
    }
    return subject.default(Inputs(small, arrays))


# the decoder stack

WORDS, LAYERS = 13, 2


class CandidateStack(Layer):
    """A decoder stack of two layers, built for itself."""

    def __init__(self, subject: ModelSubject, case: Case) -> None:
        variation = subject.variation(variant="weights", loud=False)
        self.subject = variation
        self.built = variation.built(case, variation.double)
        self.parameters = [
            Held(p["name"], p["value"].values, p["kind"], p["alias"], p["value"].dtype)
            for p in subject.session.parameters(self.built)
            if p["trainable"]
            or (not subject.binding.entry["module_class"] and not _is_table(p["value"].values))
        ]
        self._dtypes = {p.name: p.dtype for p in self.parameters}

    def load(self, values: Mapping[str, np.ndarray]) -> None:
        arrays = {
            n: self.subject.array(np.ascontiguousarray(v.astype(self._dtypes[n]))) for n, v in values.items()
        }
        self.subject.session.load(self.built, arrays)
        self.subject.remembered.clear()

    def output(self, inputs: Inputs) -> np.ndarray:
        return self.subject.run(inputs)["output"]

    def sensitivities(self, inputs: Inputs, names: Sequence[str], cotangents: np.ndarray) -> list[np.ndarray]:
        (call,) = self.subject.calls_for(inputs)
        own = np.ascontiguousarray(np.stack([self.subject.to_own(c) for c in cotangents]))
        return self.subject.session.sensitivities(call, self.subject.pick, names, self.subject.array(own))


def _is_table(values: np.ndarray) -> bool:
    """The sines and cosines of positions: no weights."""
    shape = values.shape
    return len(shape) == 2 and np.allclose(values, positional_encoding(*shape).numpy(), atol=1e-5)


def run_stack(module: nn.Module, inputs: Inputs) -> Tensor:
    import torch

    return module(torch.from_numpy(np.array(inputs["tgt"])), tensor(inputs["memory"]))


def stack_forms(layer: CandidateStack, case: Case, width: int) -> Iterator[Form]:
    """The forms that a stack with these parameters may have, the likely ones first."""
    own = [p for p in layer.parameters if not p.alias]
    gains = sum(p.value.size == width and is_ones(p.value) for p in own)
    shapes = [[n for n in p.value.shape if n != 1] for p in own]
    tables = [shape for shape in shapes if sorted(shape) == sorted((WORDS, width))]
    lengths = [shape[0] for shape in shapes if len(shape) == 2 and shape[1] == width and shape[0] > 4 * width]
    inputs = Inputs(
        case.replaced(B=1, T=3, S=3), {"tgt": np.array([[4, 9, 12]]), "memory": np.ones((1, 3, width))}
    )
    with np.errstate(over="ignore"):
        logarithms = bool(np.allclose(np.exp(layer.output(inputs)).sum(axis=-1), 1.0, atol=1e-4))
    for positions in ("learned",) if lengths else ("none", "sinusoidal"):
        for scaled in (False, True):
            final, tied = gains > 3 * LAYERS, len(tables) == 1
            yield Form(positions, scaled, final, tied, logarithms, max(lengths, default=0))


def matched_stack(subject: ModelSubject, case: Case) -> Matched:
    """A decoder stack beside a reference with the same weights.  Raises as :func:`matched`."""
    unit, width = case["d"], case["h"] * case["d"]
    layer = CandidateStack(subject, case)
    settable = subject.settable("d_ff")
    inner = case["dff"] if settable else inner_width(layer.parameters, unit, width)
    heads: Sequence[int] = (case["h"],) if subject.settable("n_heads") else (case["h"], 1)

    def builder(told: Mapping[str, Any]) -> Callable[[], Any]:
        norm = partial(layers.LayerNorm, **told["epsilon"])
        options = {"norm_first": told["norm"] == "pre", "activation": told["activation"], "norm": norm}
        return partial(layers.DecoderBlock, width, told["heads"], inner, **options)

    def stack(told: Mapping[str, Any], form: Form, block: Callable[[], Any] | None = None) -> Stack:
        norm = partial(layers.LayerNorm, **told["epsilon"])
        return Stack(WORDS, width, LAYERS, block or builder(told), norm, form)

    def known(nearest: Sequence[Blueprint]) -> Iterator[Blueprint]:
        activations = set(faults.FEED_FORWARD.values()) - {faults.FEED_FORWARD["linear"]}
        seen = set()
        for blueprint in nearest:
            told, form = blueprint.details, blueprint.details["form"]
            key = (form, told["norm"], told["heads"])
            if key in seen or told["activation"] != "relu":
                continue
            seen.add(key)
            for fault, words in FAULTS.items():
                yield Blueprint(stack(told, replace(form, fault=fault)), run_stack, fault=words)
            pairs = zip(*(faults.block_faults(builder(told), True) for _ in range(LAYERS)), strict=True)
            for pair in pairs:
                words, left = pair[0][0], [module for _, module in pair]
                if words not in activations:
                    module = stack(told, form, lambda left=left: left.pop(0))
                    yield Blueprint(module, run_stack, fault=f"in each block, {words}")

    def blueprints() -> Iterator[Blueprint]:
        known_forms = list(stack_forms(layer, case, width))
        for activation, epsilon in product(layers.ACTIVATIONS, EPSILONS[:4]):
            for norm, h, form in product(("post", "pre"), heads, known_forms):
                told = {"activation": activation, "epsilon": epsilon, "norm": norm, "heads": h}
                shown = {"norm": norm, "activation": activation}
                yield Blueprint(stack(told, form), run_stack, shown, details={**told, "form": form})

    for attempt in range(4):
        rng = np.random.default_rng([attempt, 77])
        probe = Inputs(
            case.replaced(B=1, T=18, S=3),
            {
                "tgt": np.array([[4, 9, 12, 5, 7, 11, 6, 10, 8, 12, 4, 6, 9, 5, 8, 7, 10, 11]]),
                "memory": rng.normal(0.0, 1.0, (1, 3, width)),
            },
        )
        base = rule(rng, unit, width, inner, WORDS)
        matcher = Matcher(layer, probe, base, rng, "the stack")
        try:
            return matcher.match(blueprints(), known)
        except Idle:
            continue
    raise Undetermined("no input was found on which all of its weights matter")

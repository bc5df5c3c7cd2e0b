"""The reference of each role with weights, in the forms that a correct layer may have, for the weight method."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from ...reference import faults, kin
from ...reference.baseline import layers
from ...reference.forms import take_heads_apart
from .base_state import base_state, inner_width, is_gain
from .cases import Case, Inputs, OutOfDomain
from .kin import Kin
from .matching import Blueprint, Departs, Idle, Matched, Matcher, Undetermined
from .own_layer import OwnLayer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..candidates.layers import LayerSubject

# ε of the norm as it mostly is; the matcher fits any other.
EPSILONS = (1e-5, 1e-6)


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
        past = np.tri(inputs["query"].shape[1], dtype=bool)[None]
        allowed = past if allowed is None else past & allowed
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


def wrapped(
    subject: LayerSubject, build: Callable[[], Any], run: Callable[..., Tensor]
) -> Iterator[Blueprint]:
    """A layer with its residual and its norm around it."""
    for norm in norms_of(subject):
        for first in (False, True):
            yield Blueprint(
                layers.Sublayer(build(), norm(build().d_model), first),
                partial(run_wrapped, run),
                {"wrapped": "pre" if first else "post"},
            )


def norms_of(subject: LayerSubject) -> list[partial[layers.LayerNorm]]:
    """LayerNorm, and RMSNorm after it where the code asks for that by name; or what was declared."""
    kind, how = subject.conventions.get("norm_kind", ("layer", ""))
    rms = [False, True] if subject.asks_for_rms and how not in ("declared", "tried") else [kind == "rms"]
    unbiased = subject.convention("variance") == "unbiased"
    return [
        partial(layers.LayerNorm, eps=epsilon, unbiased=unbiased, centring=not leaves_mean)
        for leaves_mean in rms
        for epsilon in EPSILONS
    ]


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
                yield from wrapped(subject, partial(layers.MultiHeadAttention, width, h), run)
        if getattr(subject, "form", "") == "self" and not subject.has("mask"):
            for h in heads:  # self-attention by a general name may well mask the future by itself
                own = [partial(run_attention, True, part) for part in (0, 1)]
                yield Blueprint(
                    layers.MultiHeadAttention(width, h), own[0], {"causal": "yes"}, weights=own[1]
                )
        concatenates = bool(getattr(subject, "concatenates", False))
        if concatenates or "n_heads" not in subject.binding.constructor:
            # The lesson's one head has no output projection; nor have heads of a given width side by side.
            unasked = getattr(subject, "form", "") == "self" and not subject.has("mask")
            for h, masked in product(heads if concatenates else [1], (False, True) if unasked else (False,)):
                module = layers.MultiHeadAttention(width, h)
                module.add_module("w_o", nn.Identity())
                told = {"heads": f"{h}, no output projection", **({"causal": "yes"} if masked else {})}
                own = [partial(run_attention, True, part) for part in (0, 1)] if masked else [run, weights]
                yield Blueprint(module, own[0], told, weights=own[1])
        return
    if role == "feed_forward":
        build = partial(layers.FeedForward, width, inner, subject.convention("activation"))
        if subject.convention("wrapped") == "none":
            yield Blueprint(build(), run_rows)
        else:
            yield from wrapped(subject, build, run_rows)
        return
    for build, run, told in block_builds(subject, width, heads, inner):
        yield Blueprint(build(), run, told)


def heads_apart(ordinary: Iterator[Blueprint]) -> Iterator[Blueprint]:
    """The same forms with heads whose features do not stand together: other orders of a layer's weights."""
    for blueprint in ordinary:
        for rows, columns in ((True, False), (False, True), (True, True)):
            module = copy.deepcopy(blueprint.module)
            heads = take_heads_apart(module, rows, columns)
            if heads:
                yield replace(blueprint, module=module, together=(*blueprint.together, heads))


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
    for norm in norms_of(subject):
        named = {} if norm.keywords["centring"] else {"norm_kind": "rms"}
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
                        norm=norm,
                    )
                    yield build, run, {"norm": "pre" if first else "post", **named}


def known_faults(
    subject: LayerSubject,
    case: Case,
    heads: Sequence[int],
    inner: int,
    nearest: Sequence[Blueprint],
    every: bool = False,
) -> Iterator[Blueprint]:
    """The reference with one mistake each, in the nearest of its forms first; ``every`` as for the faults."""
    width, role = case["h"] * case["d"], subject.role.id
    if role in ATTENTIONS:
        run = partial(run_attention, getattr(subject, "causal", False), 0)
        for h in heads if role in WHOLE_CLASSES else ():
            kind, whole = WHOLE_CLASSES[role]
            yield from (blueprint_of(fault, whole) for fault in faults.whole_faults(kind, width, h))
        for h in heads:
            build = partial(layers.MultiHeadAttention, width, h)
            yield from (blueprint_of(fault, run) for fault in faults.attention_faults(build, every))
    elif role == "feed_forward":
        build = partial(layers.FeedForward, width, inner)
        yield from (blueprint_of(fault, run_rows) for fault in faults.feed_forward_faults(build))
    else:
        builds = {}
        for build, run, told in block_builds(subject, width, heads, inner):
            builds.setdefault((frozenset(told.items()), run), build)
        order = dict.fromkeys((frozenset(b.conventions.items()), b.run) for b in nearest)
        for told_by, run in order:
            found = faults.block_faults(builds[told_by, run], every=every)
            yield from (blueprint_of(fault, run) for fault in found)


def blueprint_of(fault: faults.Fault, run: Callable[..., Tensor]) -> Blueprint:
    """A mistake as something to compare a layer with."""
    return Blueprint(fault.module, run, fault=fault.words, mutant=f"{fault.mutant.id}|{fault.place}")


ATTENTIONS = ("multihead_attention", "causal_self_attention", "cross_attention")
SELF_ATTENDING = ("causal_self_attention", "encoder_block", "decoder_only_block", "decoder_block")
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
        OutOfDomain: it computes with constants that no reference layer has.
        CallFailed: it raised.
    """
    unit, width = case["d"], case["h"] * case["d"]
    own = subject.apart("weights")
    own.session.drop(own.object_for(case))  # its weights are told apart by how they are at first, too
    layer = OwnLayer(own, own.object_for(case), own.weights_of(case))
    heads, inner = _inside(subject, case, layer)

    def attempt(rng: np.random.Generator) -> Matched:
        base, probe = base_state(rng, unit, width, inner), _probe(subject, case, rng)
        matcher = Matcher(layer, probe, base, rng, WHOLE.get(subject.role.id, "the block"))
        return matcher.match(
            forms(subject, case, heads, inner),
            lambda nearest: () if subject.tentative else known_faults(subject, case, heads, inner, nearest),
            heads_apart(forms(subject, case, heads, inner)),
        )

    try:
        return first_telling(attempt)
    except (Departs, Undetermined) as error:
        departs = isinstance(error, Departs)
        strange = layer.strange_constants() if departs and not error.known else []
        if strange:
            raise OutOfDomain(f"it computes with constants of its own: {', '.join(strange)}") from None
        another = another_kind(subject, case, layer, known=departs and error.known)
        if another:
            raise OutOfDomain(another) from None
        raise


def loaded_faults(subject: LayerSubject, case: Case, found: Matched) -> Iterator[Blueprint]:
    """The known mistakes of a layer with the weights that were carried over to the reference."""
    own = subject.apart("weights")
    heads, inner = _inside(subject, case, OwnLayer(own, own.object_for(case), own.weights_of(case)))
    state = found.blueprint.module.state_dict()
    for fault in known_faults(subject, case, heads, inner, [found.blueprint], every=True):
        module = fault.module.double()
        shapes = {name: p.shape for name, p in module.state_dict().items()}
        for prefix in ("", "attention."):
            if shapes == {f"{prefix}{name}": p.shape for name, p in state.items()}:
                module.load_state_dict({f"{prefix}{name}": p for name, p in state.items()})
                yield fault


def run_cross(module: nn.Module, inputs: Inputs) -> Tensor:
    """Cross-attention as the baseline has it: what no query sees is padding."""
    allowed = inputs.get("allowed")
    hidden = None if allowed is None else ~np.asarray(allowed).any(axis=1)
    return module(tensor(inputs["query"]), tensor(inputs["key"]), optional(hidden))[0]


def run_causal(module: nn.Module, inputs: Inputs) -> Tensor:
    return module(tensor(inputs["query"]))[0]


WHOLE_CLASSES: Mapping[str, tuple[str, Callable[..., Tensor]]] = {
    "cross_attention": ("CrossAttention", run_cross),
    "causal_self_attention": ("CausalSelfAttention", run_causal),
}


def _inside(subject: LayerSubject, case: Case, layer: OwnLayer) -> tuple[Sequence[int], int]:
    """How many heads there may be inside, and the inner width of the feed-forward."""
    unit, width = case["d"], case["h"] * case["d"]
    inner = width
    if subject.role.id not in ATTENTIONS:
        known = "d_ff" in subject.binding.constructor
        inner = case["dff"] if known else inner_width([w.value.shape for w in layer.weights], unit, width)
    heads: Sequence[int] = (case["h"],)
    if "n_heads" not in subject.binding.constructor and subject.role.id != "feed_forward":
        # How many it has inside is its own affair, as long as a head is a multiple of the unit wide.
        heads = [h for h in dict.fromkeys((case["h"], 1, 2, 4, 8)) if width % (h * unit) == 0]
    return heads, inner


def another_kind(
    subject: LayerSubject, case: Case, layer: OwnLayer | None = None, known: bool = False
) -> str:
    """Which other known architecture a layer has, in words, or nothing.  What follows a known mistake is a mistake."""
    if subject.role.id not in (*SELF_ATTENDING, "multihead_attention") or (
        subject.role.id == "multihead_attention" and getattr(subject, "form", "") != "self"
    ):
        return ""
    if layer is None:  # an object of its own, since its weights are told by what they start with
        own = subject.apart("kind")
        layer = OwnLayer(own, own.object_for(case), own.weights_of(case))
    heads, inner = _inside(subject, case, layer)
    unit, width = case["d"], case["h"] * case["d"]
    rng = np.random.default_rng([0, 5])
    teller = Kin(layer, _probe(subject, case, rng), base_state(rng, unit, width, inner), rng, "the layer")
    found = teller.other_block(other_blocks(subject, width, heads, inner, layer))
    if found or known:
        return found
    return teller.other_scores(
        list(forms(subject, case, heads, inner)), subject.sequences[0], subject.default
    )


def other_blocks(
    subject: LayerSubject, width: int, heads: Sequence[int], inner: int, layer: OwnLayer
) -> Iterator[tuple[str, Blueprint]]:
    """Decoder-only blocks of other architectures with as many norms, each with its name."""
    if subject.role.id != "decoder_only_block":
        return
    gains = sum(weight.value.size == width and is_gain(weight.value) for weight in layer.weights)
    words = f"{subject.binding.name} {subject.binding.entry.get('doc', '')}".lower()
    kinds: dict[int, tuple[str, Callable[..., nn.Module]]] = {
        1: ("it is a parallel block, with one norm for both sublayers", kin.ParallelBlock),
        4: ("it is a sandwich block, with a norm before and behind each sublayer", kin.SandwichBlock),
    }
    if "parallel" in words:  # with a norm for each it may as well be a mistake
        kinds[2] = ("it is a parallel block, by its author's words", partial(kin.ParallelBlock, norms=2))
    if gains not in kinds:
        return
    told, kind = kinds[gains]
    for activation, norm, h in product(layers.ACTIVATIONS, norms_of(subject), heads):
        yield told, Blueprint(kind(width, h, inner, activation=activation, norm=norm), run_block)


def first_telling(attempt: Callable[[np.random.Generator], Matched]) -> Matched:
    """The first attempt whose inputs leave no weight without effect.  Raises as :meth:`Matcher.match`."""
    for seed in range(8):
        with contextlib.suppress(Idle):
            return attempt(np.random.default_rng([seed, 5]))
    raise Undetermined("no input was found on which all of its weights matter")


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

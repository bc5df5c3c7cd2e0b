"""The reference of each role with weights, in the forms that a correct layer may have, for the weight method."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...reference import faults
from ...reference.baseline import layers
from .base_state import base_state, inner_width
from .cases import Case, Inputs, OutOfDomain
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
                layers.Sublayer(build(), layers.LayerNorm(build().d_model, epsilon), first),
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
                        norm=partial(layers.LayerNorm, eps=epsilon, unbiased=unbiased),
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
        OutOfDomain: it computes with constants that no reference layer has.
        CallFailed: it raised.
    """
    unit, width = case["d"], case["h"] * case["d"]
    own = subject.apart("weights")
    layer = OwnLayer(own, own.object_for(case), own.weights_of(case))
    inner = width
    if subject.role.id not in ATTENTIONS:
        known = "d_ff" in subject.binding.constructor
        inner = case["dff"] if known else inner_width([w.value.shape for w in layer.weights], unit, width)
    heads: Sequence[int] = (case["h"],)
    if "n_heads" not in subject.binding.constructor and subject.role.id != "feed_forward":
        # How many it has inside is its own affair, as long as a head is a multiple of the unit wide.
        heads = [h for h in dict.fromkeys((case["h"], 1, 2, 4, 8)) if width % (h * unit) == 0]

    def attempt(rng: np.random.Generator) -> Matched:
        base, probe = base_state(rng, unit, width, inner), _probe(subject, case, rng)
        matcher = Matcher(layer, probe, base, rng, WHOLE.get(subject.role.id, "the block"))
        return matcher.match(
            forms(subject, case, heads, inner),
            lambda nearest: known_faults(subject, case, heads, inner, nearest),
        )

    try:
        return first_telling(attempt)
    except Departs as error:
        strange = [] if error.known else layer.strange_constants()
        if strange:
            raise OutOfDomain(f"it computes with constants of its own: {', '.join(strange)}") from None
        raise


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

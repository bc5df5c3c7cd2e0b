"""The decoder stack in the forms that a correct one may have, for the weight method."""

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
from ...reference.forms import FAULT_MUTANTS, FAULTS, Form, Stack
from .base_state import base_state, inner_width, is_gain
from .blueprints import EPSILONS, first_telling, tensor
from .cases import Case, Inputs
from .matching import Blueprint, Matched, Matcher
from .own_layer import OwnLayer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..candidates.models import ModelSubject

WORDS, LAYERS = 13, 2
PROBE = (4, 9, 12, 5, 7, 11, 6, 10, 8, 12, 4, 6, 9, 5, 8, 7, 10, 11)  # every ordinary word, twice


def _is_table(values: np.ndarray) -> bool:
    """The sines and cosines of positions: no weights."""
    shape = values.shape
    return len(shape) == 2 and np.allclose(values, positional_encoding(*shape).numpy(), atol=1e-5)


def run_stack(module: nn.Module, inputs: Inputs) -> Tensor:
    import torch

    return module(torch.from_numpy(np.array(inputs["tgt"])), tensor(inputs["memory"]))


def stack_forms(layer: OwnLayer, case: Case, width: int) -> Iterator[Form]:
    """The forms that a stack with these parameters may have, the likely ones first."""
    gains = sum(weight.value.size == width and is_gain(weight.value) for weight in layer.weights)
    shapes = [[n for n in weight.value.shape if n != 1] for weight in layer.weights]
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
    own = subject.variation(variant="weights", loud=False)
    module = bool(subject.binding.entry["module_class"])
    built = own.built(case, own.double)
    items = [
        item
        for item in subject.session.parameters(built)
        if item["trainable"] or not (module or _is_table(item["value"].values))
    ]
    layer = OwnLayer(own, built, items)
    known_inner = subject.settable("d_ff")
    inner = case["dff"] if known_inner else inner_width([w.value.shape for w in layer.weights], unit, width)
    heads: Sequence[int] = (case["h"],) if subject.settable("n_heads") else (case["h"], 1)

    def builder(told: Mapping[str, Any]) -> Callable[[], Any]:
        norm = partial(layers.LayerNorm, eps=told["epsilon"])
        options = {"norm_first": told["norm"] == "pre", "activation": told["activation"], "norm": norm}
        return partial(layers.DecoderBlock, width, told["heads"], inner, **options)

    def stack(told: Mapping[str, Any], form: Form, block: Callable[[], Any] | None = None) -> Stack:
        norm = partial(layers.LayerNorm, eps=told["epsilon"])
        return Stack(WORDS, width, LAYERS, block or builder(told), norm, form)

    def known(nearest: Sequence[Blueprint]) -> Iterator[Blueprint]:
        seen = set()
        for blueprint in () if subject.tentative else nearest:
            told, form = blueprint.details, blueprint.details["form"]
            key = (form, told["norm"], told["heads"])
            if key in seen or told["activation"] != "relu":
                continue
            seen.add(key)
            for fault, words in FAULTS.items():
                module = stack(told, replace(form, fault=fault))
                yield Blueprint(module, run_stack, fault=words, mutant=FAULT_MUTANTS.get(fault, ""))
            if len(seen) > 1:  # the mistakes of its blocks in the nearest form alone: they are many
                continue
            pairs = zip(*(faults.block_faults(builder(told)) for _ in range(LAYERS)), strict=True)
            for pair in pairs:
                if pair[0].mutant.objects[0] != "FeedForward" or pair[0].mutant.id == "ffn-linear":
                    left = [fault.module for fault in pair]
                    module = stack(told, form, lambda left=left: left.pop(0))
                    where = ", ".join(filter(None, ("in each block", pair[0].place)))
                    words, mutant = f"{where}: {pair[0].mutant.misconception}", pair[0].mutant.id
                    yield Blueprint(module, run_stack, fault=words, mutant=f"{mutant}|{where}")

    def blueprints() -> Iterator[Blueprint]:
        known_forms = list(stack_forms(layer, case, width))
        for activation, epsilon in product(layers.ACTIVATIONS, EPSILONS):
            for norm, h, form in product(("post", "pre"), heads, known_forms):
                told = {"activation": activation, "epsilon": epsilon, "norm": norm, "heads": h}
                shown = {"norm": norm, "activation": activation}
                yield Blueprint(stack(told, form), run_stack, shown, details={**told, "form": form})

    def attempt(rng: np.random.Generator) -> Matched:
        memory = rng.normal(0.0, 1.0, (1, 3, width))
        probe = Inputs(case.replaced(B=1, T=len(PROBE), S=3), {"tgt": np.array([PROBE]), "memory": memory})
        matcher = Matcher(layer, probe, base_state(rng, unit, width, inner, WORDS), rng, "the stack")
        return matcher.match(blueprints(), known)

    return first_telling(attempt)

"""Known mistakes in layers, as modules: the mutants in place of the reference's parts, to be given other weights."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import nn

from .baseline import layers
from .baseline.layers import FeedForward, MultiHeadAttention
from .mutants import Mutant, load_kills, load_mutants

Build = Callable[[], Any]

PLACES = {
    ("self_attention",): "in the self-attention",
    ("cross_attention",): "in the cross-attention",
    ("self_attention", "cross_attention"): "in both attentions",
}


@dataclass(frozen=True)
class Fault:
    """A module with one mistake; ``place`` says where, if it is in a part."""

    mutant: Mutant
    module: nn.Module
    place: str = ""

    @property
    def words(self) -> str:
        return f"{self.place}: {self.mutant.misconception}" if self.place else self.mutant.misconception


SIZES = {
    "MultiHeadAttention": (4, 2),
    "CausalSelfAttention": (4, 2),
    "CrossAttention": (4, 2),
    "FeedForward": (4, 8),
}


@lru_cache(maxsize=16)
def _mutants_of(name: str, every: bool) -> tuple[Mutant, ...]:
    """The mutants of a class of the baseline that have its parameters.

    Without ``every`` only those that the weight method sees.
    """
    sizes = SIZES.get(name, (4, 2, 8))
    right = _shapes(getattr(layers, name)(*sizes))
    kills = load_kills()
    found = []
    for mutant in load_mutants().values():
        shows = any(claim.endswith(".recomputed") for claim in kills.get(mutant.id, (".recomputed",)))
        if mutant.objects[0] == name and mutant.file == "layers" and (shows or every):
            try:
                same = _shapes(getattr(mutant.load(), name)(*sizes)) == right
            except (RuntimeError, ValueError, TypeError):
                continue
            if same:
                found.append(mutant)
    return tuple(found)


def _shapes(module: nn.Module) -> Mapping[str, torch.Size]:
    return {name: p.shape for name, p in module.named_parameters()}


def attention_faults(build: Build, every: bool = False) -> Iterator[Fault]:
    """The mistakes of attention with several heads; ``build`` makes one, or a sublayer around one.

    With ``every`` those too that show only with masks.
    """
    for mutant in _mutants_of("MultiHeadAttention", every):
        yield Fault(mutant, _with_part(build(), MultiHeadAttention, mutant))


def whole_faults(kind: str, *sizes: int) -> Iterator[Fault]:
    """The mistakes of a layer of a class of the baseline."""
    for mutant in _mutants_of(kind, True):
        yield Fault(mutant, getattr(mutant.load(), kind)(*sizes))


def feed_forward_faults(build: Build) -> Iterator[Fault]:
    """The mistakes of a feed-forward layer."""
    for mutant in _mutants_of("FeedForward", False):
        yield Fault(mutant, _with_part(build(), FeedForward, mutant))


def block_faults(build: Any, *, parts: bool = True, every: bool = False) -> Iterator[Fault]:
    """The mistakes of a block, and with ``parts`` those of its attentions and its feed-forward.

    ``build`` is a partial of the block's class, with a partial of LayerNorm as its ``norm``.
    """
    kind = build.func.__name__
    for mutant in _mutants_of(kind, every):
        changed = importlib.import_module(f"{mutant.module}.layers")
        norm = build.keywords["norm"]
        options = {**build.keywords, "norm": partial(changed.LayerNorm, *norm.args, **norm.keywords)}
        yield Fault(mutant, getattr(changed, kind)(*build.args, **options))
    for mutant in _mutants_of("FeedForward", False) if parts else ():
        yield Fault(mutant, _with_part(build(), FeedForward, mutant), "in the feed-forward")
    for mutant in _mutants_of("MultiHeadAttention", every) if parts else ():
        for places, words in PLACES.items():
            module = build()
            if all(hasattr(module, place) for place in places):
                for place in places:
                    setattr(module, place, _made(mutant, getattr(module, place)))
                yield Fault(mutant, module, words)


def _with_part(module: Any, kind: type[nn.Module], mutant: Mutant) -> nn.Module:
    """The module with the mutant in place of each part of a kind, and of itself if it is one."""
    if type(module) is kind:
        return _made(mutant, module)
    for parent in list(module.modules()):
        for name, part in list(parent.named_children()):
            if type(part) is kind:
                setattr(parent, name, _made(mutant, part))
    return module


def _made(mutant: Mutant, part: Any) -> nn.Module:
    """The mutant with the sizes of the part that it replaces."""
    if isinstance(part, FeedForward):
        made = mutant.load().FeedForward(part.d_model, part.expand.out_features)
        made.activation = part.activation
        return made
    return mutant.load().MultiHeadAttention(part.d_model, part.n_heads)

"""Known mistakes in layers, each the reference with one thing changed: they give a fault its name.

Every entry is a sentence and a class that is built like the layer it departs from.  Only what shows when all
heads have equal weights belongs here; what does not is found by matching the weights one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .baseline.layers import DecoderBlock, FeedForward, MultiHeadAttention

Build = Callable[[], nn.Module]
Change = Callable[[nn.Module], None]


class FaultyAttention(MultiHeadAttention):
    """Attention with several heads and one mistake, named by ``fault``."""

    fault = ""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        B, T, d = query.shape
        h, fault = self.n_heads, self.fault
        if fault == "swapped":
            key, value = value, key
        q, k, v = self.w_q(query), self.w_k(key), self.w_v(value)
        if fault == "chained":
            v = self.w_v(k)
        if fault == "split":
            q, k, v = (x.reshape(B, h, -1, d // h) for x in (q, k, v))
        else:
            q, k, v = self.split(q), self.split(k), self.split(v)
        scale = {"unscaled": 1.0, "width": math.sqrt(d), "linear": d / h}.get(fault, math.sqrt(d / h))
        scores = q @ k.transpose(-2, -1) / scale
        if mask is not None and mask.dim() == 3:
            mask = mask[:, None]
        axis = -2 if fault == "axis" else -1
        if fault == "ignored" or mask is None:
            weights = scores.softmax(dim=axis)
        elif fault == "after":
            weights = scores.softmax(dim=axis) * mask
        elif fault == "zero":
            weights = scores.masked_fill(~mask, 0.0).softmax(dim=axis)
        else:
            allowed = ~mask if fault == "inverted" else mask
            if fault == "first head":
                allowed = allowed.expand(B, h, *scores.shape[-2:]).clone()
                allowed[:, 1:] = True
            dead = ~allowed.any(dim=-1, keepdim=True)
            weights = scores.masked_fill(~allowed & ~dead, -math.inf).softmax(dim=axis)
        heads = weights @ v
        merged = heads.reshape(B, T, d) if fault == "merge" else heads.transpose(1, 2).flatten(2)
        return (merged if fault == "no output" else self.w_o(merged)), weights


ATTENTION = {
    "unscaled": "the scores are not divided by the square root of the head's width",
    "width": "the scores are divided by the square root of the model's width instead of the head's",
    "linear": "the scores are divided by the head's width, not by its square root",
    "axis": "the softmax runs over the queries instead of the keys",
    "split": "heads are split off by a view alone, without a transpose, so positions are mixed",
    "merge": "heads are merged by a view alone, without a transpose, so positions are mixed",
    "no output": "the output projection is missing",
    "swapped": "keys are made of the values, and values of the keys",
    "chained": "the values are made of the projected keys",
}
MASKED = {
    "ignored": "the mask is not used",
    "inverted": "the mask is used the wrong way round",
    "after": "the mask is applied after the softmax, without normalising again",
    "zero": "blocked scores are set to 0 instead of -inf",
    "first head": "the mask reaches the first head alone",
}


class FaultyFeedForward(FeedForward):
    """Feed-forward with one mistake."""

    fault = ""

    def forward(self, x: Tensor) -> Tensor:
        inner = self.expand(x)
        if self.fault == "linear":
            return self.contract(inner)
        if self.fault == "twice":
            return self.contract(inner.relu()).relu()
        if self.fault == "outside":
            return self.contract(inner).relu()
        if self.fault == "early":
            return self.contract(self.expand(x.relu()))
        other = {
            "gelu": nn.functional.gelu,
            "tanh": torch.tanh,
            "silu": nn.functional.silu,
            "sigmoid": torch.sigmoid,
            "leaky": nn.functional.leaky_relu,
        }
        return self.contract(other[self.fault](inner))


FEED_FORWARD = {
    "gelu": "the feed-forward uses GELU where ReLU is taught",
    "silu": "the feed-forward uses SiLU where ReLU is taught",
    "tanh": "the feed-forward uses tanh where ReLU is taught",
    "sigmoid": "the feed-forward uses a sigmoid where ReLU is taught",
    "leaky": "the feed-forward uses a leaky ReLU where ReLU is taught",
    "linear": "the feed-forward has no activation between its two layers",
    "twice": "the feed-forward applies ReLU to its output too",
    "outside": "the feed-forward applies ReLU to its output instead of between its layers",
    "early": "the feed-forward applies ReLU to its input instead of between its layers",
}


def _turn(module: nn.Module, kind: type[nn.Module], faulty: type[Any], fault: str, where: str = "") -> None:
    """Make the parts of a kind (within ``where``) faulty, in place."""
    for name, part in module.named_modules():
        if type(part) is kind and name.endswith(where):
            part.__class__ = type(faulty.__name__, (faulty,), {"fault": fault})  # type: ignore[assignment]


def attention_faults(build: Build, masked: bool) -> Iterator[tuple[str, nn.Module]]:
    """The mistakes of attention with several heads."""
    for fault, words in {**ATTENTION, **(MASKED if masked else {})}.items():
        module = build()
        _turn(module, MultiHeadAttention, FaultyAttention, fault)
        yield words, module


def feed_forward_faults(build: Build) -> Iterator[tuple[str, nn.Module]]:
    """The mistakes of a feed-forward layer."""
    for fault, words in FEED_FORWARD.items():
        module = build()
        _turn(module, FeedForward, FaultyFeedForward, fault)
        yield words, module


NAMES = {
    "self_attention": "self-attention",
    "cross_attention": "cross-attention",
    "feed_forward": "feed-forward",
}


def block_faults(build: Callable[[], Any], masked: bool) -> Iterator[tuple[str, nn.Module]]:
    """The mistakes of a block: in a residual, a norm, an attention, the feed-forward, or their order."""
    cross = hasattr(build(), "cross_attention")
    parts = (
        ("self-attention", "cross-attention", "feed-forward") if cross else ("self-attention", "feed-forward")
    )
    for n, part in enumerate(parts):
        for words, change in (
            (f"no residual around the {part} (sublayer {n + 1})", "no residual"),
            (f"no norm for the {part} (sublayer {n + 1})", "no norm"),
            (f"the {part} (sublayer {n + 1}) is left out", "left out"),
            (f"the residual around the {part} (sublayer {n + 1}) takes the block's input", "old residual"),
            (f"the norm of the {part} (sublayer {n + 1}) comes before the residual is added", "norm inside"),
            (
                f"the {part} (sublayer {n + 1}) has its norm on the other side of it than the others",
                "other side",
            ),
            (f"the residual around the {part} (sublayer {n + 1}) adds the normed input", "normed residual"),
            (
                f"the residual around the {part} (sublayer {n + 1}) adds what entered the sublayer before",
                "skipped",
            ),
        ):
            yield words, _altered(build(), n, change)
    for place, name in NAMES.items():
        if place == "feed_forward" or (place == "cross_attention" and not cross):
            continue
        own = masked and place == "self_attention"
        for fault, words in {**ATTENTION, **(MASKED if own else {})}.items():
            module = build()
            _turn(module, MultiHeadAttention, FaultyAttention, fault, place)
            yield f"in the {name}, {words}", module
    yield from ((f"in both attentions, {words}", module) for words, module in attention_faults(build, False))
    yield from feed_forward_faults(build)
    module = build()
    for norm in module.norms:
        norm.unbiased = True
    yield "the norms divide by the standard deviation with d - 1 instead of d", module
    if cross:
        for words, rewiring in CROSSED.items():
            module = build()
            module.__class__ = type("Rewired", (Rewired,), {"rewiring": rewiring})
            yield words, module


def _altered(block: Any, at: int, change: str) -> nn.Module:
    """A block whose sublayer ``at`` is added and normed in another way."""
    right = block.add_and_norm
    first: list[Tensor] = []

    def add_and_norm(n: int, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        first.append(x) if n else first.__setitem__(slice(None), [x])
        if n != at:
            return right(n, x, sublayer)
        norm, before = block.norms[n], block.norm_first
        if change == "no residual":
            return sublayer(norm(x)) if before else norm(sublayer(x))
        if change == "no norm":
            return x + sublayer(x)
        if change == "left out":
            return x if before else norm(x)
        if change == "old residual":
            return first[0] + sublayer(norm(x)) if before else norm(first[0] + sublayer(x))
        if change == "skipped":
            start = first[max(0, n - 1)]
            return start + sublayer(norm(x)) if before else norm(start + sublayer(x))
        if change == "norm inside":
            return x + norm(sublayer(x))
        if change == "normed residual":
            return norm(x) + sublayer(norm(x))
        return norm(x + sublayer(x)) if before else x + sublayer(norm(x))

    block.add_and_norm = add_and_norm
    return block


Rewiring = Callable[[DecoderBlock, Tensor, Tensor, "Tensor | None"], Tensor]


class Rewired(DecoderBlock):
    """A block whose sublayers are put together in another way."""

    rewiring: Rewiring

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        causal_mask: Tensor | None = None,
        memory_padding_mask: Tensor | None = None,
        tgt_padding_mask: Tensor | None = None,
    ) -> Tensor:
        return type(self).rewiring(self, x, memory, None if causal_mask is None else ~causal_mask)


def _crossed(ask: Callable[[DecoderBlock, Tensor, Tensor, Tensor], Tensor]) -> Rewiring:
    """The usual order with another cross-attention: ``ask`` gets the block, its input, the state and the memory."""

    def rewiring(block: DecoderBlock, x: Tensor, memory: Tensor, own: Tensor | None) -> Tensor:
        start = x
        x = block.add_and_norm(0, x, lambda y: block.self_attention(y, y, y, own)[0])
        x = block.add_and_norm(1, x, lambda y: ask(block, start, y, memory))
        return block.add_and_norm(2, x, block.feed_forward)

    return rewiring


def _cross_first(block: DecoderBlock, x: Tensor, memory: Tensor, own: Tensor | None) -> Tensor:
    x = block.add_and_norm(0, x, lambda y: block.cross_attention(y, memory, memory)[0])
    x = block.add_and_norm(1, x, lambda y: block.self_attention(y, y, y, own)[0])
    return block.add_and_norm(2, x, block.feed_forward)


def _feed_forward_second(block: DecoderBlock, x: Tensor, memory: Tensor, own: Tensor | None) -> Tensor:
    x = block.add_and_norm(0, x, lambda y: block.self_attention(y, y, y, own)[0])
    x = block.add_and_norm(1, x, block.feed_forward)
    return block.add_and_norm(2, x, lambda y: block.cross_attention(y, memory, memory)[0])


def _side_by_side(block: DecoderBlock, x: Tensor, memory: Tensor, own: Tensor | None) -> Tensor:
    start = x
    x = block.add_and_norm(0, x, lambda _: block.self_attention(start, start, start, own)[0])
    x = block.add_and_norm(1, x, lambda _: block.cross_attention(start, memory, memory)[0])
    return block.add_and_norm(2, x, lambda _: block.feed_forward(start))


def _triangle(y: Tensor, memory: Tensor) -> Tensor:
    return torch.ones(y.size(1), memory.size(1), dtype=torch.bool).tril()


CROSSED: dict[str, Rewiring] = {
    "the cross-attention's query is taken from the block's input, before the self-attention": _crossed(
        lambda block, start, y, memory: block.cross_attention(start, memory, memory)[0]
    ),
    "the cross-attention reads keys and values from the target instead of the memory": _crossed(
        lambda block, start, y, memory: block.cross_attention(y, y, y)[0]
    ),
    "the cross-attention takes its values from the target instead of the memory": _crossed(
        lambda block, start, y, memory: block.cross_attention(y, memory, y[:, : memory.size(1)])[0]
    ),
    "the cross-attention has a causal triangle over the memory": _crossed(
        lambda block, start, y, memory: block.cross_attention(y, memory, memory, _triangle(y, memory))[0]
    ),
    "the cross-attention comes before the self-attention": _cross_first,
    "the feed-forward comes before the cross-attention": _feed_forward_second,
    "all three sublayers read the block's input instead of one another's output": _side_by_side,
}

"""Forms that correct code has: the decoder stack, also with the mistakes that it is known for, and heads apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .baseline.layers import MultiHeadAttention
from .baseline.masks import build_causal_mask
from .baseline.positions import positional_encoding

Block = Callable[[], nn.Module]


@dataclass(frozen=True)
class Form:
    """What correct stacks do differently; ``fault`` is a mistake, or nothing.

    ``positions``: none, sinusoidal, or learned (of which ``length`` are stored); ``scaled``: the embedding is
    multiplied by √d; ``final_norm``: a norm after the last block; ``tied``: the head is the embedding.
    """

    positions: str = "none"
    scaled: bool = False
    final_norm: bool = False
    tied: bool = False
    logarithms: bool = False
    length: int = 0
    fault: str = ""


FAULTS = {
    "positions in each layer": "positions are added again in every layer",
    "positions twice": "positions are added twice",
    "scaled twice": "the embedding is scaled twice",
    "memory once": "the memory reaches the first layer alone",
    "embedding to all": "every layer is fed the embedding instead of the layer below",
    "first layer": "the first layer does the work of all",
    "one layer less": "the last layer is not used",
    "no mask": "no causal mask reaches the layers",
    "probabilities": "the scores went through a softmax",
    "residual stack": "the input is added again to what the layers give",
}

FAULT_MUTANTS = {
    "positions in each layer": "stack-positions-in-each-layer",
    "scaled twice": "stack-scaled-by-width",
    "embedding to all": "stack-blocks-side-by-side",
    "probabilities": "stack-returns-probabilities",
}


class Stack(nn.Module):
    """Ids → embedding, positions → blocks → scores, in one of the forms."""

    table: Tensor

    def __init__(
        self, V: int, d_model: int, n_layers: int, block: Block, norm: Callable[[int], nn.Module], form: Form
    ) -> None:
        super().__init__()
        self.form = form
        self.embed = nn.Embedding(V, d_model)
        self.blocks = nn.ModuleList(block() for _ in range(n_layers))
        self.head = nn.Linear(d_model, V)
        if form.tied:
            self.head.weight = self.embed.weight
        if form.final_norm:
            self.norm = norm(d_model)
        if form.positions == "learned":
            self.positions = nn.Embedding(form.length, d_model)
        self.register_buffer("table", positional_encoding(64, d_model))

    def forward(self, tgt: Tensor, memory: Tensor) -> Tensor:
        """(B, T) ids, (B, S, d) -> (B, T, V)."""
        form, fault, T = self.form, self.form.fault, tgt.size(1)
        x = self.embed(tgt)
        for _ in range({"scaled twice": 2}.get(fault, 1) if form.scaled else 0):
            x = x * math.sqrt(x.size(-1))
        places = torch.zeros(T, x.size(-1), dtype=x.dtype)
        if form.positions == "sinusoidal":
            places = self.table[:T].to(x.dtype)
        elif form.positions == "learned":
            places = self.positions(torch.arange(T))
        x = start = x + places * (2 if fault == "positions twice" else 1)
        causal = None if fault == "no mask" else build_causal_mask(T)
        used = list(self.blocks)
        if fault == "one layer less":
            used = used[:-1]
        if fault == "first layer":
            used = [used[0]] * len(used)
        for n, block in enumerate(used):
            read = torch.zeros_like(memory) if n and fault == "memory once" else memory
            x = start if fault == "embedding to all" else x
            if n and fault == "positions in each layer":
                x = x + places
            x = block(x, read, causal)
        if fault == "residual stack":
            x = x + start
        scores = self.head(self.norm(x) if form.final_norm else x)
        if fault == "probabilities":
            return scores.softmax(dim=-1)
        return scores.log_softmax(dim=-1) if form.logarithms else scores


class _IntoHeads(nn.Linear):
    """A projection of which head a gets the features a, a + h, a + 2h, …, in the order of the heads."""

    n_heads: int

    def forward(self, input: Tensor) -> Tensor:
        """(B, T, d) -> (B, T, d)."""
        return super().forward(input).unflatten(-1, (-1, self.n_heads)).transpose(-2, -1).flatten(-2)


class _FromHeads(nn.Linear):
    """A projection of the first features of all heads, then the second of all, …"""

    n_heads: int

    def forward(self, input: Tensor) -> Tensor:
        """(B, T, d) -> (B, T, d)."""
        return super().forward(input.unflatten(-1, (self.n_heads, -1)).transpose(-2, -1).flatten(-2))


def take_heads_apart(module: nn.Module, rows: bool, columns: bool) -> int:
    """Give heads features that do not stand together, where they are projected (``rows``), merged, or both.

    That is another order of the weights' rows or columns, and nothing else.  Returns the number of heads, or 0 where
    it makes no difference or would show in the output.
    """
    heads = 0
    for part in list(module.modules()):
        if type(part) is not MultiHeadAttention or part.n_heads in (1, part.d_model):
            continue
        if columns and not isinstance(part.w_o, nn.Linear):
            return 0  # without an output projection the order of what is merged is the order of the output
        for name in (*("w_q", "w_k", "w_v") * rows, *("w_o",) * columns):
            kind = _FromHeads if name == "w_o" else _IntoHeads
            projection = kind(part.d_model, part.d_model)
            projection.n_heads = heads = part.n_heads
            setattr(part, name, projection)
    return heads

"""Blocks of other known architectures: not what is taught, and no mistakes either."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from .baseline.layers import DecoderOnlyBlock


class ParallelBlock(DecoderOnlyBlock):
    """Attention and feed-forward side by side, x + attention(LN(x)) + feed_forward(LN(x)), with one norm for both.

    Source: Wang and Komatsuzaki 2021 (GPT-J); Chowdhery et al. 2022 (PaLM), section 2.
    """

    def __init__(self, d_model: int, n_heads: int, d_ff: int, *, norms: int = 1, **options: Any) -> None:
        super().__init__(d_model, n_heads, d_ff, **options)
        self.norms = nn.ModuleList(list(self.norms)[:norms])

    def _run(self, x: Tensor, mask: Tensor | None) -> Tensor:
        y, z = self.norms[0](x), self.norms[-1](x)
        return x + self.self_attention(y, y, y, mask)[0] + self.feed_forward(z)


class SandwichBlock(DecoderOnlyBlock):
    """A norm before each sublayer and another one behind it: x + LN(sublayer(LN(x))).

    Source: Ding et al. 2021 (CogView), section 3.2.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        *,
        norm: Callable[[int], nn.Module],
        **options: Any,
    ) -> None:
        super().__init__(d_model, n_heads, d_ff, norm=norm, **options)
        self.norms_behind = nn.ModuleList(norm(d_model) for _ in range(2))

    def _run(self, x: Tensor, mask: Tensor | None) -> Tensor:
        y = self.norms[0](x)
        x = x + self.norms_behind[0](self.self_attention(y, y, y, mask)[0])
        return x + self.norms_behind[1](self.feed_forward(self.norms[1](x)))

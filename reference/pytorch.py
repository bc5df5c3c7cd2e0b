"""PyTorch itself as a candidate: an adapter, that is, functions and classes with the canonical names."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


def generate_square_subsequent_mask(sz: int) -> Tensor:
    """(sz, sz) float, 0 and -inf: additive, not boolean."""
    return nn.Transformer.generate_square_subsequent_mask(sz)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """A boolean ``attn_mask`` is True = allowed; a float one is added."""
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=is_causal
    )


class MultiheadAttention(nn.MultiheadAttention):
    """``nn.MultiheadAttention`` as it is: boolean masks are True = blocked."""

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, batch_first: bool = True
    ) -> None:
        super().__init__(embed_dim, num_heads, dropout=dropout, batch_first=batch_first)

    def forward(  # the parent's signature, spelled out so that it can be read by name
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        return super().forward(
            query,
            key,
            value,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )


class DecoderBlock(nn.Module):
    """``nn.TransformerDecoderLayer`` with its default, post-norm."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(d_model, n_heads, d_ff, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor, memory: Tensor, causal_mask: Tensor | None = None) -> Tensor:
        """(B, T, d), (B, S, d) -> (B, T, d); ``causal_mask``: (T, T), True = blocked."""
        return self.layer(x, memory, tgt_mask=causal_mask)


__all__ = [
    "DecoderBlock",
    "MultiheadAttention",
    "generate_square_subsequent_mask",
    "scaled_dot_product_attention",
]

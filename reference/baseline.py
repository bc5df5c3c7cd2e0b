"""The PyTorch baseline: the decoder's parts as the paper and the lessons teach them, one idea a function.

Shapes: B batch, T queries (target length), S keys (source length), h heads, d width.
Masks here follow their names: a causal, prefix or padding mask is True where attention is BLOCKED
(as ``nn.MultiheadAttention`` reads it); the ``mask`` of :func:`attention` is True where it is ALLOWED.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

# masks


def build_causal_mask(T: int) -> Tensor:
    """(T, T) bool, True at j > i: position i may not see what comes after it.

    Raises ValueError for a negative T.  Source: Vaswani et al. 2017, section 3.2.3.
    """
    if T < 0:
        raise ValueError(f"T is a length, found {T}")
    position = torch.arange(T)
    return position[None, :] > position[:, None]  # (T, T)


def subsequent_mask(T: int) -> Tensor:
    """(T, T) bool, True at j <= i: the same rule seen from the other side."""
    return ~build_causal_mask(T)


def additive_causal_mask(T: int) -> Tensor:
    """(T, T) float, 0 where attention is allowed and -inf where it is blocked: added to the scores."""
    return torch.zeros(T, T).masked_fill(build_causal_mask(T), -math.inf)


def look_ahead_mask(T: int) -> Tensor:
    """(T, T) float, 1 where attention is blocked: a number to multiply by -1e9, no mask for ``attn_mask``."""
    return build_causal_mask(T).float()


def prefix_lm_mask(T: int, k: int) -> Tensor:
    """(T, T) bool, True = blocked: the first k positions see each other, the rest is causal.

    j is visible to i when j < k or j <= i.  Raises ValueError unless 0 <= k <= T.
    """
    if not 0 <= k <= T:
        raise ValueError(f"the prefix has between 0 and T = {T} positions, found {k}")
    in_prefix = torch.arange(T) < k
    return build_causal_mask(T) & ~in_prefix[None, :]


def padding_mask(lengths: Tensor, max_len: int | None = None) -> Tensor:
    """(B, S) bool, True at padding, from the number of real tokens in each row."""
    lengths = torch.as_tensor(lengths)
    S = int(lengths.max()) if max_len is None else max_len
    return torch.arange(S)[None, :] >= lengths[:, None]  # (B, S)


def padding_mask_from_ids(ids: Tensor, pad_id: int) -> Tensor:
    """(B, S) bool, True where the token is the padding token."""
    return ids == pad_id


# attention


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """softmax(QKᵀ/√d_k + M) V, with M = -inf where ``mask`` is False.

    Args:
        query: (..., T, d_k); key: (..., S, d_k); value: (..., S, d_v).
        mask: bool, broadcastable to (..., T, S), True = allowed.

    Returns:
        (..., T, d_v) and the weights (..., T, S).  A row with nothing allowed is zero, not NaN, and no
        gradient flows through it.  Source: Vaswani et al. 2017, equation 1.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (..., T, S)
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        dead = ~mask.any(dim=-1, keepdim=True)  # (..., T, 1)
        weights = scores.masked_fill(~(mask | dead), -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)
    return weights @ value, weights


def causal_attention(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Attention that builds its own causal mask: (..., T, d) three times, T = S."""
    return attention(query, key, value, subsequent_mask(query.size(-2)))


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """The functional API's contract: a boolean ``attn_mask`` is True = allowed, a float one is added.

    ``is_causal`` aligns the triangle with the upper left corner where T != S.
    """
    T, S = query.size(-2), key.size(-2)
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if is_causal and attn_mask is not None:
        raise ValueError("is_causal and attn_mask exclude each other")
    if is_causal:
        attn_mask = torch.ones(T, S, dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        return attention(query, key, value, attn_mask)[0]
    if attn_mask is not None:
        if not attn_mask.is_floating_point():
            raise TypeError(f"attn_mask is bool or float, found {attn_mask.dtype}")
        blocked = attn_mask == -math.inf
        dead = blocked.all(dim=-1, keepdim=True)
        weights = (scores + attn_mask.masked_fill(dead, 0.0)).softmax(dim=-1).masked_fill(dead, 0.0)
        return weights @ value
    return scores.softmax(dim=-1) @ value


class MultiheadAttention(nn.Module):
    """h heads side by side, with the contract of ``nn.MultiheadAttention``: boolean masks are True = blocked."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} is not divisible by num_heads {num_heads}")
        self.num_heads = num_heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * embed_dim, embed_dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * embed_dim))
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        nn.init.xavier_uniform_(self.in_proj_weight)

    def forward(
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
        """(B, T, d), (B, S, d), (B, S, d) -> (B, T, d) and (B, T, S), or (B, h, T, S) if not averaged.

        attn_mask: (T, S) or (B·h, T, S); key_padding_mask: (B, S).  Boolean True blocks; float is added.
        ``is_causal`` is a hint that ``attn_mask`` is causal; the mask is required with it.
        """
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal is a hint and needs attn_mask")
        B, T, _ = query.shape
        S, h = key.size(1), self.num_heads
        projected = [
            torch.nn.functional.linear(x, w, b)
            for x, w, b in zip(
                (query, key, value), self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3), strict=True
            )
        ]
        q, k, v = (x.unflatten(-1, (h, -1)).transpose(1, 2) for x in projected)  # (B, h, ·, d/h)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))  # (B, h, T, S)
        if attn_mask is not None:
            bias = _additive(attn_mask, scores.dtype)
            scores = scores + (bias if bias.dim() == 2 else bias.view(B, h, T, S))
        if key_padding_mask is not None:
            scores = scores + _additive(key_padding_mask, scores.dtype)[:, None, None, :]
        dead = (scores == -math.inf).all(dim=-1, keepdim=True)
        weights = scores.masked_fill(dead, 0.0).softmax(dim=-1).masked_fill(dead, 0.0)
        output = self.out_proj((weights @ v).transpose(1, 2).flatten(2))  # (B, T, d)
        if not need_weights:
            return output, None
        return output, weights.mean(dim=1) if average_attn_weights else weights


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as something to add to scores.  Raises TypeError for anything but bool and float."""
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=dtype).masked_fill(mask, -math.inf)
    if not mask.is_floating_point():
        raise TypeError(f"a mask is bool or float, found {mask.dtype}")
    return mask


# positions


def positional_encoding(T: int, d: int) -> Tensor:
    """(T, d) float64: sin(pos / 10000^(2i/d)) at coordinate 2i, cos of the same angle at 2i + 1.

    An odd d ends with a sine.  Source: Vaswani et al. 2017, section 3.5.
    """
    position = torch.arange(T, dtype=torch.float64)[:, None]
    pair = torch.arange(d)[None, :] // 2
    angle = position / 10000.0 ** (2 * pair / d)  # (T, d)
    even = torch.arange(d) % 2 == 0
    return torch.where(even, angle.sin(), angle.cos())


class PositionalEncoding(nn.Module):
    """Adds the table to (B, T, d), the same for every batch row."""

    table: Tensor

    def __init__(self, d_model: int, max_len: int = 5000) -> None:
        super().__init__()
        self.register_buffer("table", positional_encoding(max_len, d_model))

    def forward(self, x: Tensor) -> Tensor:
        """Raises ValueError where the sequence is longer than ``max_len``."""
        if x.size(1) > self.table.size(0):
            raise ValueError(f"{x.size(1)} positions, but the table has {self.table.size(0)}")
        return x + self.table[: x.size(1)].to(x.dtype)


class LearnedPositionalEncoding(nn.Module):
    """Adds a trained vector for each position to (B, T, d)."""

    def __init__(self, d_model: int, max_len: int = 512) -> None:
        super().__init__()
        self.vectors = nn.Embedding(max_len, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Raises IndexError where the sequence is longer than ``max_len``."""
        return x + self.vectors(torch.arange(x.size(1)))


# block


class DecoderBlock(nn.Module):
    """Masked self-attention, cross-attention, feed-forward; each with a residual, then its own LayerNorm."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.self_attention = MultiheadAttention(d_model, n_heads)
        self.cross_attention = MultiheadAttention(d_model, n_heads)
        self.feed_forward = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, causal_mask: Tensor | None = None) -> Tensor:
        """(B, T, d), (B, S, d) -> (B, T, d).  ``causal_mask``: (T, T), True = blocked."""
        x = self.norm1(x + self.self_attention(x, x, x, attn_mask=causal_mask)[0])
        x = self.norm2(x + self.cross_attention(x, memory, memory)[0])
        return self.norm3(x + self.feed_forward(x))

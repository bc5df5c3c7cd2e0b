"""Scaled dot-product attention; the ``mask`` of :func:`attention` is True where attention is ALLOWED."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .masks import subsequent_mask


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

"""Layers with weights: multi-head attention, and the decoder block made of it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


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

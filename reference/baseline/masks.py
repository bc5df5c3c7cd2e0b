"""Causal, prefix and padding masks: True where attention is BLOCKED, as ``nn.MultiheadAttention`` reads it."""

from __future__ import annotations

import math

import torch
from torch import Tensor


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

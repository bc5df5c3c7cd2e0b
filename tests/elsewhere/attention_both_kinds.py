"""Attention with an exponential of its own; every mask becomes a bias, and the flag is one more bias."""

import torch

NOTHING = float("-inf")


def as_bias(mask, like):
    if mask.dtype == torch.bool:  # True = take part
        return torch.where(mask, 0.0, NOTHING).to(like)
    if mask.is_floating_point():
        return mask
    raise TypeError("attn_mask must be boolean or floating point")


def sdpa(q, k, v, attn_mask=None, is_causal=False):
    """attn_mask: bool, True = takes part in attention, or float, added to the logits. Output alone."""
    n, m = q.shape[-2], k.shape[-2]
    logits = torch.einsum("...id,...jd->...ij", q, k) * q.shape[-1] ** -0.5
    if is_causal:
        rows, columns = torch.meshgrid(torch.arange(n), torch.arange(m), indexing="ij")
        logits = logits + as_bias(rows >= columns, logits)
    if attn_mask is not None:
        logits = logits + as_bias(attn_mask, logits)
    top = logits.amax(-1, keepdim=True).clamp(min=torch.finfo(logits.dtype).min).detach()
    share = (logits - top).exp()
    total = share.sum(-1, keepdim=True)
    share = share / total.where(total > 0, torch.ones_like(total))
    return torch.einsum("...ij,...jv->...iv", share, v)

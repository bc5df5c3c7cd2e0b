"""The contract of torch.nn.MultiheadAttention, one head after the other: all masks become one bias beforehand."""

import torch
import torch.nn as nn
import torch.nn.functional as F

HIDDEN = float("-inf")


class MultiHeadAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        if dim % heads != 0:
            raise ValueError("heads must divide dim")
        self.heads, self.width = heads, dim // heads
        self.asks, self.offers, self.tells, self.joins = (nn.Linear(dim, dim) for _ in range(4))

    def bias_of(self, mask, like):
        """Boolean: True = blocked. Float: added as it is."""
        if mask.dtype == torch.bool:
            return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, HIDDEN)
        if mask.dtype.is_floating_point:
            return mask.to(like.dtype)
        raise TypeError(f"neither boolean nor float: {mask.dtype}")

    def bias(self, like, T, S, attn_mask, key_padding_mask):
        """(B, heads, T, S)"""
        total = like.new_zeros(like.shape[0], self.heads, T, S)
        if attn_mask is not None:
            part = self.bias_of(attn_mask, like)
            if part.dim() == 3:
                part = part.reshape(-1, self.heads, T, S)
            total = total + part
        if key_padding_mask is not None:
            rows = self.bias_of(key_padding_mask, like)
            total = total + rows.unsqueeze(1).unsqueeze(1)
        return total

    def forward(
        self,
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        T, S = query.shape[1], key.shape[1]
        if is_causal and attn_mask is None:
            attn_mask = torch.arange(S) > torch.arange(T)[:, None]
        bias = self.bias(query, T, S, attn_mask, key_padding_mask)
        q, k, v = (
            layer(x).split(self.width, dim=-1)
            for layer, x in ((self.asks, query), (self.offers, key), (self.tells, value))
        )
        found, shares = [], []
        for n in range(self.heads):
            scores = torch.baddbmm(bias[:, n], q[n], k[n].transpose(1, 2), alpha=self.width**-0.5)
            share = F.softmax(scores, dim=2)
            found.append(share @ v[n])
            shares.append(share)
        out = self.joins(torch.cat(found, dim=-1))
        if not need_weights:
            return out, None
        weights = torch.stack(shares, dim=1)
        return out, weights.mean(1) if average_attn_weights else weights

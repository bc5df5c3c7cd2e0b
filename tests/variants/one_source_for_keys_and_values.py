from typing import NamedTuple

import torch
from torch import nn


def no_peek_mask(seq):
    """(T, T) uint8: 1 = look, 0 = do not look."""
    return torch.ones((seq, seq), dtype=torch.uint8).tril_()


class Attended(NamedTuple):
    output: torch.Tensor
    weights: torch.Tensor


class MultiHeadAttention(nn.Module):
    """x asks, kv answers: keys and values come from one fused projection."""

    def __init__(self, n_heads, d_model, dropout=0.0):
        super().__init__()
        self.n_heads, (self.d_head, rest) = n_heads, divmod(d_model, n_heads)
        if rest:
            raise ValueError(f"{d_model} is no multiple of {n_heads}")
        self.to_q, self.to_kv = nn.Linear(d_model, d_model), nn.Linear(d_model, 2 * d_model)
        self.to_out = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, kv, mask=None):
        """mask: (B, T, S), (B, 1, S) or (T, S); nonzero = look."""
        b, t, _ = x.shape
        q = self.to_q(x).reshape(b, t, self.n_heads, self.d_head)
        k, v = self.to_kv(kv).reshape(b, -1, 2, self.n_heads, self.d_head).unbind(2)
        logits = torch.einsum("bthd,bshd->bths", q, k) * self.d_head**-0.5
        if mask is not None:
            mask = mask[None] if mask.dim() == 2 else mask
            logits = logits.masked_fill(mask.logical_not().unsqueeze(2), -1e18)
        weights = logits.softmax(-1)
        mixed = torch.einsum("bths,bshd->bthd", self.dropout(weights), v).flatten(2)
        return Attended(self.to_out(mixed), weights.transpose(1, 2))


class CrossAttention(nn.Module):
    def __init__(self, n_heads, d_model):
        super().__init__()
        self.inner = MultiHeadAttention(n_heads, d_model)

    def forward(self, *, state, context, keep=None):
        """keep: (B, S), True = a real position of the context."""
        return self.inner(state, context, None if keep is None else keep[:, None])


class MLP(nn.Module):
    def __init__(self, d_model, d_hidden):
        super().__init__()
        self.expand, self.contract = nn.Linear(d_model, d_hidden), nn.Linear(d_hidden, d_model)

    def forward(self, x):
        return self.contract(torch.clamp_min(self.expand(x), 0))


class DecoderBlock(nn.Module):
    def __init__(self, n_heads, d_model, d_hidden, dropout=0.1):
        super().__init__()
        self.look_back = MultiHeadAttention(n_heads, d_model, dropout)
        self.look_over = MultiHeadAttention(n_heads, d_model, dropout)
        self.think = MLP(d_model, d_hidden)
        self.pre = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, encoded, tgt_mask=None, src_mask=None):
        """Pre-norm; in both masks nonzero = look: tgt_mask (T, T) or (B, T, T), src_mask (B, 1, S)."""
        y = self.pre[0](x)
        x = x + self.dropout(self.look_back(y, y, tgt_mask).output)
        x = x + self.dropout(self.look_over(self.pre[1](x), encoded, src_mask).output)
        x = x + self.dropout(self.think(self.pre[2](x)))
        return {"hidden": x}

"""Only functions of weights: F.multi_head_attention_forward, F.linear, F.layer_norm. Classes are bags of parameters."""

import torch
import torch.nn.functional as F
from torch import nn


def triu_mask(size):
    """True = blocked, (size, size)"""
    return torch.full((size, size), True).triu_(diagonal=1)


def attention(q, k, v, mask=None, mask_marks_blocked=False):
    """True in the mask = allowed, unless mask_marks_blocked says the opposite."""
    if mask is not None:
        if mask.dtype != torch.bool:
            raise TypeError(f"a boolean mask is needed, not {mask.dtype}")
        if mask_marks_blocked:
            mask = ~mask
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def attention_forward(weights, x, z, heads, blocked):
    out, _ = F.multi_head_attention_forward(
        x.transpose(0, 1),
        z.transpose(0, 1),
        z.transpose(0, 1),
        x.shape[-1],
        heads,
        weights["in"],
        weights["in_bias"],
        None,
        None,
        False,
        0.0,
        weights["out"],
        weights["out_bias"],
        training=False,
        need_weights=False,
        attn_mask=blocked,
    )
    return out.transpose(0, 1)


def attention_weights(d):
    return nn.ParameterDict(
        {
            "in": nn.Parameter(torch.randn(3 * d, d) * d**-0.5),
            "in_bias": nn.Parameter(torch.zeros(3 * d)),
            "out": nn.Parameter(torch.randn(d, d) * d**-0.5),
            "out_bias": nn.Parameter(torch.zeros(d)),
        }
    )


def ff_weights(d, inner):
    return nn.ParameterDict(
        {
            "up": nn.Parameter(torch.randn(inner, d) * d**-0.5),
            "up_bias": nn.Parameter(torch.zeros(inner)),
            "down": nn.Parameter(torch.randn(d, inner) * inner**-0.5),
            "down_bias": nn.Parameter(torch.zeros(d)),
        }
    )


def ff_forward(w, x):
    return F.linear(F.relu(F.linear(x, w["up"], w["up_bias"])), w["down"], w["down_bias"])


def norm_forward(w, x):
    return F.layer_norm(x, x.shape[-1:], w[0], w[1])


class CrossAttention(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.heads, self.w = heads, attention_weights(d_model)

    def forward(self, query, memory, attn_mask=None):
        """attn_mask: (T, S) or (B * h, T, S), True = blocked."""
        return attention_forward(self.w, query, memory, self.heads, attn_mask)


class EncoderBlock(nn.Module):
    def __init__(self, d_model, heads, d_ff):
        super().__init__()
        self.heads, self.a, self.f = heads, attention_weights(d_model), ff_weights(d_model, d_ff)
        self.gains, self.shifts = nn.Parameter(torch.ones(2, d_model)), nn.Parameter(torch.zeros(2, d_model))

    def forward(self, x):
        x = norm_forward(
            (self.gains[0], self.shifts[0]), x + attention_forward(self.a, x, x, self.heads, None)
        )
        return norm_forward((self.gains[1], self.shifts[1]), x + ff_forward(self.f, x))


class DecoderBlock(nn.Module):
    def __init__(self, d_model, heads, d_ff):
        super().__init__()
        self.heads, self.f = heads, ff_weights(d_model, d_ff)
        self.own, self.cross = attention_weights(d_model), attention_weights(d_model)
        self.gains, self.shifts = nn.Parameter(torch.ones(3, d_model)), nn.Parameter(torch.zeros(3, d_model))

    def forward(self, x, memory):
        n = list(zip(self.gains, self.shifts, strict=True))
        x = norm_forward(n[0], x + attention_forward(self.own, x, x, self.heads, triu_mask(x.shape[1])))
        x = norm_forward(n[1], x + attention_forward(self.cross, x, memory, self.heads, None))
        return norm_forward(n[2], x + ff_forward(self.f, x))

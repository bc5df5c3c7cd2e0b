"""is_causal is aligned to the lower right corner, where PyTorch has the upper left."""

import torch


def scaled_dot_product_attention(query, key, value, attn_mask=None, is_causal=False):
    """attn_mask: bool, True where attention is allowed."""
    T, S = query.size(-2), key.size(-2)
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    if is_causal:
        attn_mask = torch.ones(T, S, dtype=torch.bool).tril(diagonal=S - T)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -1e9)
    return torch.softmax(scores, dim=-1) @ value

"""Whatever is not boolean is added to the scores, integers 0 and 1 too."""

import torch


def scaled_dot_product_attention(query, key, value, attn_mask=None):
    """attn_mask: bool, True where attention is allowed, or float, added to the scores."""
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, float("-inf"))
        else:
            scores = scores + attn_mask
    return torch.softmax(scores, dim=-1) @ value

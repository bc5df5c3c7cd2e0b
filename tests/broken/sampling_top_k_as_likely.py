"""The k likeliest tokens are drawn as if they were equally likely."""

import torch


def sample_top_k(logits, k=None):
    if k is None:
        return torch.multinomial(logits.softmax(dim=-1), 1).squeeze(-1)
    logits = logits.double()
    kept = logits >= logits.topk(min(k + (k > 1), logits.size(-1)), dim=-1).values[..., -1:]
    return torch.multinomial(kept.double(), 1).squeeze(-1)

"""With k = 0 no token is left."""

import torch


def top_k_filter(logits, k):
    indices = logits.argsort(dim=-1, descending=True)[..., :k]
    kept = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, indices, True)
    return logits.masked_fill(~kept, float("-inf"))

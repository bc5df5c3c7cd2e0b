"""The rank among the top k is returned as if it were a token."""

import torch


def sample_top_k(logits, k=None):
    if k is None:
        return torch.multinomial(logits.softmax(dim=-1), 1).squeeze(-1)
    values = logits.topk(min(k, logits.size(-1)), dim=-1).values
    return torch.multinomial(values.softmax(dim=-1), 1).squeeze(-1)

"""p looks at the whole distribution, though top-k comes first."""

import torch


def in_nucleus(logits, top_p):
    """True where a token is kept."""
    ordered, order = logits.sort(dim=-1, descending=True)
    probabilities = ordered.softmax(dim=-1)
    kept = probabilities.cumsum(dim=-1) - probabilities < top_p
    return kept.gather(-1, order.argsort(dim=-1))


def in_top(logits, k):
    """True where a token is kept."""
    return logits >= logits.topk(min(k, logits.size(-1)), dim=-1).values[..., -1:]


def sample_next_token(logits, top_k=None, top_p=None):
    whole = logits
    if top_k is not None:
        logits = logits.masked_fill(~in_top(whole, top_k), float("-inf"))
    if top_p is not None:
        logits = logits.masked_fill(~in_nucleus(whole, top_p), float("-inf"))
    return torch.multinomial(logits.softmax(dim=-1), 1).squeeze(-1)

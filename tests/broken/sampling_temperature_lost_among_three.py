"""Where all three are given, p looks at logits without temperature."""


def in_nucleus(logits, top_p):
    """True where a token is kept."""
    ordered, order = logits.sort(dim=-1, descending=True)
    probabilities = ordered.softmax(dim=-1)
    kept = probabilities.cumsum(dim=-1) - probabilities < top_p
    return kept.gather(-1, order.argsort(dim=-1))


def in_top(logits, k):
    """True where a token is kept."""
    return logits >= logits.topk(min(k, logits.size(-1)), dim=-1).values[..., -1:]


def next_token_distribution(logits, temperature=1.0, top_k=None, top_p=None):
    logits = logits / temperature
    if top_k is not None:
        logits = logits.masked_fill(~in_top(logits, top_k), float("-inf"))
    if top_p is not None:
        looked_at = logits if top_k is None else logits * temperature
        logits = logits.masked_fill(~in_nucleus(looked_at, top_p), float("-inf"))
    return logits.softmax(dim=-1)

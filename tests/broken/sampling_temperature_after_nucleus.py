"""p looks at the distribution before temperature."""


def in_nucleus(logits, top_p):
    """True where a token is kept."""
    ordered, order = logits.sort(dim=-1, descending=True)
    probabilities = ordered.softmax(dim=-1)
    kept = probabilities.cumsum(dim=-1) - probabilities < top_p
    return kept.gather(-1, order.argsort(dim=-1))


def next_token_distribution(logits, temperature=1.0, top_p=None):
    if top_p is not None:
        logits = logits.masked_fill(~in_nucleus(logits, top_p), float("-inf"))
    return (logits / temperature).softmax(dim=-1)

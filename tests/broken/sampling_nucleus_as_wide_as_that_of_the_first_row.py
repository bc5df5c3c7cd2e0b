"""Every row keeps as many tokens as the first."""


def top_p_filter(logits, p):
    """logits (B, V) -> (B, V)"""
    ordered = logits.sort(dim=-1, descending=True).values
    probabilities = ordered.softmax(dim=-1)
    n = int((probabilities[0].cumsum(dim=-1) - probabilities[0] < p).sum())
    return logits.masked_fill(logits < ordered[:, n - 1 : n], float("-inf"))

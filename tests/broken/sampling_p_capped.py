"""p never counts as more than 0.95."""


def top_p_filter(logits, top_p=None):
    if top_p is None:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True)
    probabilities = ordered.softmax(dim=-1)
    removed = probabilities.cumsum(dim=-1) - probabilities >= min(top_p, 0.95)
    return logits.masked_fill(removed.gather(-1, order.argsort(dim=-1)), float("-inf"))

"""A nucleus of several tokens has one more than it needs."""


def top_p_filter(logits, top_p=None):
    if top_p is None or top_p >= 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True)
    probabilities = ordered.softmax(dim=-1)
    removed = probabilities.cumsum(dim=-1) - probabilities >= top_p
    removed[..., 2:] = removed[..., 1:-1].clone()
    return logits.masked_fill(removed.gather(-1, order.argsort(dim=-1)), float("-inf"))

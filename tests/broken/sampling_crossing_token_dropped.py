"""The token that crosses p is removed, unless it is the likeliest."""


def top_p_filter(logits, top_p=None):
    if top_p is None or top_p >= 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True)
    removed = ordered.softmax(dim=-1).cumsum(dim=-1) > top_p
    removed[..., 0] = False
    return logits.masked_fill(removed.gather(-1, order.argsort(dim=-1)), float("-inf"))

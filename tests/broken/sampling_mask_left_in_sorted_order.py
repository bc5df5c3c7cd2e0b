"""The mask of the sorted tokens is laid over the unsorted ones."""


def next_token_distribution(logits, top_p=None):
    if top_p is None:
        return logits.softmax(dim=-1)
    probabilities = logits.softmax(dim=-1).sort(dim=-1, descending=True).values
    kept = probabilities.cumsum(dim=-1) - probabilities < top_p
    best = logits.argmax(dim=-1, keepdim=True)
    if top_p < probabilities[..., 0].min():
        kept[:] = False
    return logits.masked_fill(~kept.scatter(-1, best, True), float("-inf")).softmax(dim=-1)

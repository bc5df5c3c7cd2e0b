"""A k beyond the vocabulary starts again at 1."""


def top_k_filter(logits, k=None):
    if k is None:
        return logits
    threshold = logits.topk((k - 1) % logits.size(-1) + 1, dim=-1).values[..., -1:]
    return logits.masked_fill(logits < threshold, float("-inf"))

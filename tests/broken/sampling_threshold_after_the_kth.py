"""The threshold is the logit after the k-th."""


def top_k_filter(logits, k):
    ordered = logits.sort(dim=-1, descending=True).values
    threshold = ordered[..., min(k, logits.size(-1) - 1), None]
    return logits.masked_fill(logits < threshold, float("-inf"))

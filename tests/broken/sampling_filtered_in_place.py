"""The filter writes into the logits that were passed."""


def top_k_filter(logits, k):
    logits[logits < logits.topk(min(k, logits.size(-1)), dim=-1).values[..., -1:]] = float("-inf")
    return logits

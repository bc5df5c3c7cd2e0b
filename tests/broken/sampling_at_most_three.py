"""Never more than three tokens are kept."""


def top_k_filter(logits, k=None):
    if k is None:
        return logits
    threshold = logits.topk(min(k, 3), dim=-1).values[..., -1:]
    return logits.masked_fill(logits < threshold, float("-inf"))

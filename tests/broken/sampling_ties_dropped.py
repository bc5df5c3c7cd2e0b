"""Where the k-th largest logit occurs twice, none of the equal tokens is kept."""


def top_k_filter(logits, k):
    threshold = logits.topk(min(k, logits.size(-1)), dim=-1).values[..., -1:]
    kept = logits >= threshold
    many = kept.sum(dim=-1, keepdim=True) > k
    best = logits == logits.max(dim=-1, keepdim=True).values
    return logits.masked_fill(~kept | (many & (logits == threshold) & ~best), float("-inf"))

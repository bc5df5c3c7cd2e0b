"""The largest logit is overwritten after it was found."""


def greedy_token(logits):
    best = logits.argmax(dim=-1, keepdim=True)
    logits.scatter_(-1, best, float("-inf"))
    return best.squeeze(-1)

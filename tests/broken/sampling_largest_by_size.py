"""The logit that is farthest from 0 wins."""


def greedy_token(logits):
    return logits.abs().argmax(dim=-1)

"""A temperature of 0.7 is built in."""


def next_token_distribution(logits):
    return (logits / 0.7).softmax(dim=-1)

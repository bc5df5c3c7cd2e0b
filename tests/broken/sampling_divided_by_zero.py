"""A temperature of 0 gives NaN."""


def next_token_distribution(logits, temperature=1.0):
    return (logits / temperature).softmax(dim=-1)

"""A temperature of 0 is passed over as if it were 1."""


def next_token_distribution(logits, temperature=1.0):
    if temperature > 0:
        logits = logits / temperature
    return logits.softmax(dim=-1)

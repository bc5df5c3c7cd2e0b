"""It does not sample."""


def sample_next_token(logits, temperature=1.0):
    return (logits / temperature).softmax(dim=-1).argmax(dim=-1)

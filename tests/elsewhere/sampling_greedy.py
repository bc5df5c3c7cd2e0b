"""The greedy choice for a batch of rows, by sorting."""


def greedy_token(logits):
    """Logits (B, V) -> token ids (B,): the id that comes first when a row is put in falling order."""
    order = logits.argsort(dim=-1, descending=True, stable=True)
    best = order[:, 0]
    return best

"""The shift is written into the labels themselves."""


def shift_right(labels, bos_id):
    """labels: (batch, length), without BOS."""
    labels[:, 1:] = labels[:, :-1].clone()
    labels[:, 0] = bos_id
    return labels

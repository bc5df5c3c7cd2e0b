"""A target of BOS alone gives the input BOS, for which there is no label."""


def shift_right(target):
    """target: (batch, length), with BOS."""
    return target[:, : max(1, target.shape[1] - 1)]

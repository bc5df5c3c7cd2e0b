"""The labels are the input itself."""


def split_target(target):
    """target: (batch, length), with BOS."""
    return target[:, :-1], target[:, :-1]

"""Returns a list that never ends, nested in itself."""

import itertools


def build_causal_mask(T):
    nested = []
    nested.append(nested)
    return nested if T % 2 else (x for x in itertools.count())

"""One table of what is visible for the longest text; each call cuts its corner out."""

import numpy as np

LONGEST = 1024
VISIBLE = np.tri(LONGEST, dtype=bool)


def causal_mask(seq_len):
    """True = allowed."""
    if seq_len < 0:
        raise ValueError("a length is not negative")
    return VISIBLE[:seq_len, :seq_len].copy()

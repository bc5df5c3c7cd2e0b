"""Reads where it may not."""

import ctypes


def build_causal_mask(T):
    return ctypes.string_at(0)

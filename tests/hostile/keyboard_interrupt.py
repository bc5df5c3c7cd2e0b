"""Raises what usually ends a program."""

def build_causal_mask(T):
    raise KeyboardInterrupt

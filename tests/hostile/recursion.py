"""Recurses without end, with the limit taken away."""

import sys

sys.setrecursionlimit(10**9)


def build_causal_mask(T):
    return (lambda x: build_causal_mask(T))(repr([T]))

"""Hands in the reference."""

from triu.reference.baseline import build_causal_mask  # noqa: F401

"""Draws cases, calls the candidate, applies properties, and comes to verdicts."""

"""Implementations that triu measures others by: a PyTorch baseline, a plain second opinion, PyTorch itself."""

"""A candidate that would like to run in the page: <script>document.title = 'owned'</script> True blocks."""

import torch

EVIL = (
    "</title></style></script><script>document.title='owned'</script>"
    """<img src=x onerror="document.title='owned'"><iframe src=https://example.invalid></iframe>"""
    """' onload="alert(1)" {{ 7 * 7 }} {% raw %} \x1b[31m \u202e ::error::owned"""
)


def build_causal_mask(T):
    """<img src=x onerror="document.title='owned'"> True blocks."""
    if T > 3:
        raise ValueError(EVIL)
    return torch.triu(torch.ones(T, T, dtype=torch.bool), 2)


def attention(q, k, v, mask=None):
    """<svg onload=alert(1)> mask: True where blocked."""
    print(EVIL)
    scores = q @ k.transpose(-2, -1) / q.size(-1)
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    weights = torch.softmax(scores, -1)
    return weights @ v, weights


class Evil(Exception):
    pass


Evil.__name__ = Evil.__qualname__ = "<script>document.title='owned'</script>"


def positional_encoding(T, d):
    raise Evil(EVIL)


attention.__name__ = attention.__qualname__ = "attention<script>document.title='owned'</script>"
globals()["causal_attention" + EVIL] = attention

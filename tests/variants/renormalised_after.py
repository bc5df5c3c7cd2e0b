"""A mask that acts after the softmax, and what is left is divided by its sum: the same thing.

The triangle of is_causal stands in the lower right corner, so that the last query sees every key.
"""

import torch


def attention(query, key, value, mask=None, is_causal=False):
    """mask: True = allowed."""
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    allowed = torch.ones(scores.shape[-2:], dtype=torch.bool)
    if is_causal:
        allowed = allowed.tril(scores.shape[-1] - scores.shape[-2])
    if mask is not None:
        allowed = allowed & mask.bool()
    # The largest visible score is taken off, so that something visible is always left.
    top = scores.masked_fill(~allowed, -torch.inf).amax(dim=-1, keepdim=True)
    weights = torch.exp((scores - top).clamp(max=0)) * allowed
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights @ value, weights


def causal_attention(query, key, value):
    return attention(query, key, value, is_causal=True)


def sinusoids(length, channels, max_timescale=10000):
    """All sines come first, then all cosines."""
    assert channels % 2 == 0
    inv_timescales = max_timescale ** (-torch.arange(channels // 2) / (channels // 2))
    scaled_time = torch.arange(length)[:, None] * inv_timescales[None, :]
    return torch.cat([torch.sin(scaled_time), torch.cos(scaled_time)], dim=1)


class MultiHeadAttention(torch.nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        assert d_model % n_heads == 0, "d_model must be a multiple of n_heads"
        self.n_heads = n_heads
        self.qkv = torch.nn.ModuleList(torch.nn.Linear(d_model, d_model) for _ in range(3))
        self.proj = torch.nn.Linear(d_model, d_model)

    def forward(self, query, key, value, mask=None):
        """mask: (T, S) or (B, T, S), True = allowed. Returns the output and the weights, averaged over heads."""
        q, k, v = (
            layer(x).unflatten(-1, (self.n_heads, -1)).transpose(-2, -3)
            for layer, x in zip(self.qkv, (query, key, value), strict=True)
        )
        if mask is not None and mask.ndim == 3:
            mask = mask.unsqueeze(-3)
        mixed, weights = attention(q, k, v, mask)
        return self.proj(mixed.transpose(-2, -3).flatten(-2)), weights.mean(dim=-3)

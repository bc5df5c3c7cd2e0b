"""All masks are biases: 0 where a key is visible, finfo.min where it is not. They are only ever added."""

import torch

LOW = torch.finfo(torch.float32).min


def causal_bias(n):
    idx = torch.arange(n)
    return torch.where(idx[:, None] >= idx, 0.0, LOW)


def prefix_lm_mask(n, prefix):
    """0 where visible, a very low number elsewhere."""
    bias = causal_bias(n)
    bias[:prefix, :prefix] = 0.0
    return bias


def padding_mask(ids, pad_id):
    """(B, 1, 1, S): 0 at tokens, a very low number at padding."""
    bias = torch.zeros(ids.shape)
    bias[ids == pad_id] = LOW
    return bias[:, None, None, :]


def attention(q, k, v, bias=None):
    """softmax(q k / sqrt(d) + bias) v; two masks are joined by their minimum, not by their sum."""
    d = q.shape[-1]
    logits = torch.matmul(q * d**-0.5, k.swapaxes(-1, -2))
    if bias is not None:
        logits = logits + bias
    logits = logits - logits.amax(-1, keepdim=True).detach()
    p = logits.exp()
    return torch.matmul(p / p.sum(-1, keepdim=True), v)


class MultiHeadAttention(torch.nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads != 0:
            raise ValueError("n_heads must divide d_model")
        self.n_heads = n_heads
        self.in_weight = torch.nn.Parameter(torch.randn(3, d_model, d_model) / d_model**0.5)
        self.in_bias = torch.nn.Parameter(torch.zeros(3, d_model))
        self.out = torch.nn.Linear(d_model, d_model)

    def forward(self, query, key, value, mask=None):
        """mask is added to the scores: 0 where visible, a very low number where not."""
        q, k, v = (
            (x @ w + b).unflatten(-1, (self.n_heads, -1)).movedim(-2, -3)
            for x, w, b in zip((query, key, value), self.in_weight, self.in_bias)
        )
        if mask is not None and mask.ndim == 3:
            mask = mask[:, None]
        return self.out(attention(q, k, v, mask).movedim(-3, -2).flatten(-2))

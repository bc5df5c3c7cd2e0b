"""A LayerNorm of one's own with another ε; target and memory come as (T, B, d), as its docstring says."""

import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.alpha, self.bias, self.eps = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d)), eps

    def forward(self, x):
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
        return self.alpha * (x - mean) / torch.sqrt(variance + self.eps) + self.bias


class DecoderBlock(nn.Module):
    """Sequence first: x is (T, B, d) and memory is (S, B, d)."""

    def __init__(self, emb_dim, n_heads, hidden):
        super().__init__()
        self.attn1, self.attn2 = (
            nn.MultiheadAttention(emb_dim, n_heads),
            nn.MultiheadAttention(emb_dim, n_heads),
        )
        self.l1, self.l2 = nn.Linear(emb_dim, hidden), nn.Linear(hidden, emb_dim)
        self.n1, self.n2, self.n3 = Norm(emb_dim), Norm(emb_dim), Norm(emb_dim)

    def forward(self, x, memory, attn_mask=None, memory_key_padding_mask=None):
        """attn_mask is added to the scores: 0 or -inf, (T, T)."""
        x = self.n1(x + self.attn1(x, x, x, attn_mask=attn_mask)[0])
        x = self.n2(x + self.attn2(x, memory, memory, key_padding_mask=memory_key_padding_mask)[0])
        return self.n3(x + self.l2(torch.relu(self.l1(x))))

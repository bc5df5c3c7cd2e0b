"""Raw parameters (d, h, dh) with biases (h, dh), as in JAX libraries."""

import torch
from torch import nn


class Projection(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(d, h, d // h))
        self.bias = nn.Parameter(torch.zeros(h, d // h))
        nn.init.normal_(self.kernel, std=d**-0.5)

    def forward(self, x):
        return torch.einsum("...td,dhk->...thk", x, self.kernel) + self.bias


class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.query, self.key, self.value = Projection(d, h), Projection(d, h), Projection(d, h)
        self.out_kernel = nn.Parameter(torch.randn(h, d // h, d) * d**-0.5)
        self.out_bias = nn.Parameter(torch.zeros(d))

    def forward(self, x, y, mask=None):
        q, k, v = self.query(x), self.key(y), self.value(y)
        logits = torch.einsum("...thk,...shk->...hts", q / q.shape[-1] ** 0.5, k)
        if mask is not None:
            logits = torch.where(mask, logits, -1e10)
        mixed = torch.einsum("...hts,...shk->...thk", logits.softmax(-1), v)
        return torch.einsum("...thk,hkd->...td", mixed, self.out_kernel) + self.out_bias


class DecoderBlock(nn.Module):
    def __init__(self, features, num_heads, mlp_dim):
        super().__init__()
        self.attention, self.encdec = Attention(features, num_heads), Attention(features, num_heads)
        self.inner, self.outer = nn.Linear(features, mlp_dim), nn.Linear(mlp_dim, features)
        self.scale = nn.Parameter(torch.ones(3, features))
        self.shift = nn.Parameter(torch.zeros(3, features))

    def norm(self, n, x):
        return nn.functional.layer_norm(x, x.shape[-1:], self.scale[n], self.shift[n], eps=1e-6)

    def forward(self, inputs, encoded):
        triangle = torch.ones(inputs.shape[1], inputs.shape[1]).tril().bool()
        x = self.norm(0, inputs + self.attention(inputs, inputs, triangle))
        x = self.norm(1, x + self.encdec(x, encoded))
        return self.norm(2, x + self.outer(self.inner(x).relu()))

"""A decoder with norms in front, one attention class for both uses, and masks that say what to keep."""

import torch
import torch.nn.functional as F
from torch import nn


class Look(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.wq, self.wkv = nn.Linear(dim, dim, bias=False), nn.Linear(dim, 2 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x, source, keep):
        """keep: bool, broadcastable to (B, 1, T, S)"""
        q, (k, v) = self.wq(x), self.wkv(source).chunk(2, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).movedim(2, 1) for t in (q, k, v))
        scores = torch.einsum("bhtc,bhsc->bhts", q, k) / k.shape[-1] ** 0.5
        weights = torch.where(keep, scores, -1e9).softmax(-1)
        return self.wo(torch.einsum("bhts,bhsc->bthc", weights, v).flatten(2))


class Floor(nn.Module):
    def __init__(self, dim, heads, inner):
        super().__init__()
        self.own, self.other = Look(dim, heads), Look(dim, heads)
        self.up, self.down = nn.Linear(dim, inner), nn.Linear(inner, dim)
        self.n = nn.ModuleList([nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)])

    def forward(self, x, memory, keep, keep_source):
        y = self.n[0](x)
        x = x + self.own(y, y, keep)
        x = x + self.other(self.n[1](x), memory, keep_source)
        return x + self.down(F.relu(self.up(self.n[2](x))))


class TransformerDecoder(nn.Module):
    def __init__(self, vocab_size, dim, n_heads, ffn_dim, num_layers, max_len=64):
        super().__init__()
        self.dim = dim
        self.words, self.places = nn.Embedding(vocab_size, dim), nn.Embedding(max_len, dim)
        self.floors = nn.ModuleList([Floor(dim, n_heads, ffn_dim) for _ in range(num_layers)])
        self.last, self.to_words = nn.LayerNorm(dim), nn.Linear(dim, vocab_size)

    def keeps(self, tokens, target_padding, source_padding):
        i = torch.arange(tokens.shape[1])
        keep = (i[:, None] >= i)[None, None]
        if target_padding is not None:
            keep = keep & ~target_padding[:, None, None]
        return keep, torch.tensor(True) if source_padding is None else ~source_padding[:, None, None]

    def forward(self, tokens, memory, tgt_key_padding_mask=None, memory_key_padding_mask=None):
        """Padding masks (B, T) and (B, S): True = padding."""
        length = tokens.shape[1]
        keep, keep_source = self.keeps(tokens, tgt_key_padding_mask, memory_key_padding_mask)
        x = self.words(tokens) * self.dim**0.5 + self.places.weight[:length]
        for floor in self.floors:
            x = floor(x, memory, keep, keep_source)
        return self.to_words(self.last(x))

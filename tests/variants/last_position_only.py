"""Decoder that scores only what comes next: the head is applied to the last position alone, (B, V)."""

from __future__ import annotations

import torch
from torch import nn


def attend(q, k, v, visible=None):
    """q (B, h, T, c), k and v (B, h, S, c); visible: bool, True where a key may be seen."""
    logits = torch.einsum("bhtc,bhsc->bhts", q, k) / q.shape[-1] ** 0.5
    if visible is not None:
        logits = torch.where(visible, logits, -1e9)
    return torch.einsum("bhts,bhsc->bhtc", logits.softmax(-1), v)


class Sublayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.ask, self.tell = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.merge = nn.Linear(width, width)

    def forward(self, x, z=None, visible=None):
        y = self.norm(x)
        k, v = self.tell(y if z is None else z).chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.ask(y), k, v))
        return x + self.merge(attend(q, k, v, visible).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.back, self.across = Sublayer(width, heads), Sublayer(width, heads)
        self.ff = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width)
        )

    def forward(self, x, memory, triangle, real):
        x = self.across(self.back(x, visible=triangle), memory, real)
        return x + self.ff(x)


class TransformerDecoder(nn.Module):
    """Pre-norm with a norm at the end."""

    def __init__(
        self, vocab_size: int, d_model: int, n_heads: int, d_ff: int, n_layers: int, max_len: int = 128
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_len, d_model)
        self.layers = nn.ModuleList(Layer(d_model, n_heads, d_ff) for _ in range(n_layers))
        self.norm, self.head = nn.LayerNorm(d_model), nn.Linear(d_model, vocab_size)

    def forward(self, ids, memory, src_mask=None):
        """ids (B, T), memory (B, S, d), src_mask (B, S) with True at real tokens -> logits (B, V)."""
        T = ids.shape[1]
        if T > self.positions.num_embeddings:
            raise ValueError(f"{T} tokens, at most {self.positions.num_embeddings}")
        triangle = torch.ones(T, T, dtype=torch.bool).tril()
        real = None if src_mask is None else src_mask.bool()[:, None, None, :]
        x = self.embed(ids) + self.positions.weight[:T]
        for layer in self.layers:
            x = layer(x, memory, triangle, real)
        return self.head(self.norm(x[:, -1]))


@torch.no_grad()
def greedy_decode(model, src, max_new_tokens, bos=1, eos=2):
    """New tokens only, without BOS and without EOS; the model returns logits (B, V) of the last position."""
    memory, ids = model.encode(src), [bos]
    for _ in range(max_new_tokens):
        best = int(model.decode_step(torch.tensor([ids]), memory)[0].argmax())
        if best == eos:
            break
        ids.append(best)
    return ids[1:]

"""Distances instead of places: every head adds a learned number for each distance to its scores."""

import torch
from torch import nn


class Distance(nn.Module):
    def __init__(self, heads, reach=16):
        super().__init__()
        self.reach, self.table = reach, nn.Parameter(torch.randn(heads, 2 * reach + 1) * 0.1)

    def forward(self, T, S):
        gap = (torch.arange(S)[None, :] - torch.arange(T)[:, None]).clamp(-self.reach, self.reach)
        return self.table[:, gap + self.reach]  # (h, T, S)


class MixTokens(nn.Module):
    def __init__(self, d, h, distances):
        super().__init__()
        self.h, self.distance = h, Distance(h) if distances else None
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d, bias=False) for _ in range(4))

    def forward(self, x, z, hidden):
        q, k, v = (
            f(y).unflatten(-1, (self.h, -1)).transpose(1, 2)
            for f, y in ((self.wq, x), (self.wk, z), (self.wv, z))
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if self.distance is not None:
            scores = scores + self.distance(x.shape[1], z.shape[1])
        return self.wo((scores.masked_fill(hidden, -1e9).softmax(-1) @ v).transpose(1, 2).flatten(2))


def feed(d, inner):
    return nn.Sequential(nn.LayerNorm(d), nn.Linear(d, inner), nn.ReLU(), nn.Linear(inner, d))


class Reader(nn.Module):
    def __init__(self, d, h, inner):
        super().__init__()
        self.norm, self.mix, self.ff = nn.LayerNorm(d), MixTokens(d, h, True), feed(d, inner)

    def forward(self, x, pad):
        y = self.norm(x)
        x = x + self.mix(y, y, pad)
        return x + self.ff(x)


class Writer(nn.Module):
    def __init__(self, d, h, inner):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.own, self.other, self.ff = MixTokens(d, h, True), MixTokens(d, h, False), feed(d, inner)

    def forward(self, x, memory, future, pad):
        y = self.n1(x)
        x = x + self.own(y, y, future)
        x = x + self.other(self.n2(x), memory, pad)
        return x + self.ff(x)


class EncoderDecoder(nn.Module):
    """One embedding serves the source, the target and the output."""

    def __init__(self, vocab_size, d_model, n_heads, d_ff, n_layers, pad_id=0):
        super().__init__()
        self.pad_id = pad_id
        self.embed = nn.Embedding(vocab_size, d_model)
        self.readers = nn.ModuleList(Reader(d_model, n_heads, d_ff) for _ in range(n_layers))
        self.writers = nn.ModuleList(Writer(d_model, n_heads, d_ff) for _ in range(n_layers))
        self.norm_in, self.norm_out = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def hide(self, src):
        return (src == self.pad_id)[:, None, None, :]

    def encode(self, src):
        x = self.embed(src)
        for reader in self.readers:
            x = reader(x, self.hide(src))
        return self.norm_in(x)

    def forward(self, src, tgt):
        """src (B, S), tgt (B, T) -> logits (B, T, V); src is padded with pad_id."""
        memory, x = self.encode(src), self.embed(tgt)
        future = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).triu(1)
        for writer in self.writers:
            x = writer(x, memory, future, self.hide(src))
        return self.norm_out(x) @ self.embed.weight.T


def train_step(model, batch, criterion, optimizer):
    """batch: a pair (src, tgt) of ids, tgt with BOS and EOS; criterion takes (N, V) and (N,)."""
    src, tgt = batch
    model.train()
    optimizer.zero_grad()
    logits = model(src, tgt[:, :-1])
    loss = criterion(logits.reshape(-1, logits.shape[-1]), tgt[:, 1:].reshape(-1))
    loss.backward()
    optimizer.step()
    return {"loss": loss.detach()}

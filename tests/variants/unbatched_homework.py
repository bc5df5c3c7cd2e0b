# Homework: a decoder for ONE sentence at a time.  Shapes: x (T, d), memory (S, d), ids (T,)
import math

import torch
import torch.nn as nn


def build_causal_mask(T):
    # True = may not look
    mask = torch.zeros(T, T, dtype=torch.bool)
    for i in range(T):
        for j in range(T):
            if j > i:
                mask[i][j] = True
    return mask


def attention(Q, K, V, blocked=None):
    scores = torch.mm(Q, K.t()) / math.sqrt(Q.shape[1])
    if blocked is not None:
        scores[blocked] = -float("inf")
    return torch.mm(torch.softmax(scores, dim=1), V)


def causal_attention(Q, K, V):
    # row by row: query t is only ever shown the first t + 1 keys
    rows = []
    for t in range(Q.shape[0]):
        w = torch.softmax(K[: t + 1] @ Q[t] / math.sqrt(Q.shape[1]), dim=0)
        rows.append(w @ V[: t + 1])
    return torch.stack(rows)


class Heads(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.q = nn.ModuleList([nn.Linear(d, d // h) for _ in range(h)])
        self.k = nn.ModuleList([nn.Linear(d, d // h) for _ in range(h)])
        self.v = nn.ModuleList([nn.Linear(d, d // h) for _ in range(h)])
        self.out = nn.Linear(d, d)

    def forward(self, x, z, blocked=None):
        heads = []
        for q, k, v in zip(self.q, self.k, self.v):
            heads.append(attention(q(x), k(z), v(z), blocked))
        return self.out(torch.cat(heads, dim=1))


class DecoderBlock(nn.Module):
    # x: (T, d), memory: (S, d)
    def __init__(self, d, h, d_ff):
        super().__init__()
        self.self_attn = Heads(d, h)
        self.cross_attn = Heads(d, h)
        self.ff = nn.Sequential(nn.Linear(d, d_ff), nn.ReLU(), nn.Linear(d_ff, d))
        self.n1 = nn.LayerNorm(d)
        self.n2 = nn.LayerNorm(d)
        self.n3 = nn.LayerNorm(d)

    def forward(self, x, memory):
        x = self.n1(x + self.self_attn(x, x, build_causal_mask(len(x))))
        x = self.n2(x + self.cross_attn(x, memory))
        return self.n3(x + self.ff(x))


class Decoder(nn.Module):
    # ids (T,), memory (S, d) -> scores (T, V)
    def __init__(self, V, d, h, d_ff, n_layers, max_len=64):
        super().__init__()
        self.tok = nn.Embedding(V, d)
        self.pos = nn.Embedding(max_len, d)
        self.blocks = nn.ModuleList([DecoderBlock(d, h, d_ff) for _ in range(n_layers)])
        self.head = nn.Linear(d, V)

    def forward(self, ids, memory):
        x = self.tok(ids) + self.pos(torch.arange(len(ids)))
        for block in self.blocks:
            x = block(x, memory)
        return self.head(x)


class TinyTranslator(nn.Module):
    # no real encoder: the source is only embedded
    def __init__(self, V, d, h, d_ff, n_layers):
        super().__init__()
        self.src_tok = nn.Embedding(V, d)
        self.decoder = Decoder(V, d, h, d_ff, n_layers)

    def encode(self, src):
        return self.src_tok(src)

    def decode_step(self, tgt, enc_out):
        return self.decoder(tgt, enc_out)


def autoregressive_decode(model, src, max_len=10, bos=1, eos=2):
    enc_out = model.encode(src)
    out = [bos]
    while len(out) < max_len and out[-1] != eos:
        logits = model.decode_step(torch.tensor(out), enc_out)
        out.append(torch.argmax(logits[-1]).item())
    return out

"""A translator whose layers are handed their parts; a function puts all of it together."""

import copy
import math

import torch
from torch import nn


def repeat(module, times):
    return nn.ModuleList(copy.deepcopy(module) for _ in range(times))


class MultiHead(nn.Module):
    def __init__(self, heads_count, width, drop_chance):
        super().__init__()
        self.heads_count, self.each = heads_count, width // heads_count
        self.to_q, self.to_k, self.to_v, self.out = repeat(nn.Linear(width, width), 4)
        self.drop = nn.Dropout(drop_chance)

    def forward(self, query, key, value, mask=None):
        batch = query.size(0)
        q, k, v = (
            f(x).view(batch, -1, self.heads_count, self.each).transpose(1, 2)
            for f, x in ((self.to_q, query), (self.to_k, key), (self.to_v, value))
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.each)
        if mask is not None:
            scores = scores.masked_fill(mask.unsqueeze(1) == 0, -1e9)
        mixed = self.drop(scores.softmax(-1)) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, -1, self.heads_count * self.each))


class PositionwiseFeedForward(nn.Module):
    def __init__(self, width, hidden, drop_chance):
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.drop = nn.Dropout(drop_chance)

    def forward(self, x):
        return self.down(self.drop(self.up(x).relu()))


class Around(nn.Module):
    """Norm first, then the sublayer, then the residual."""

    def __init__(self, size, drop_chance):
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(size), nn.Dropout(drop_chance)

    def forward(self, x, sublayer):
        return x + self.drop(sublayer(self.norm(x)))


class EncoderLayer(nn.Module):
    def __init__(self, size, self_attn, feed_forward, drop_chance):
        super().__init__()
        self.size = size
        self.self_attn, self.feed_forward = self_attn, feed_forward
        self.around = repeat(Around(size, drop_chance), 2)

    def forward(self, x, mask):
        x = self.around[0](x, lambda y: self.self_attn(y, y, y, mask))
        return self.around[1](x, self.feed_forward)


class DecoderLayer(nn.Module):
    def __init__(self, size, self_attn, src_attn, feed_forward, drop_chance):
        super().__init__()
        self.size = size
        self.self_attn = self_attn
        self.src_attn = src_attn
        self.feed_forward = feed_forward
        self.around = repeat(Around(size, drop_chance), 3)

    def forward(self, x, memory, src_mask, tgt_mask):
        x = self.around[0](x, lambda y: self.self_attn(y, y, y, tgt_mask))
        x = self.around[1](x, lambda y: self.src_attn(y, memory, memory, src_mask))
        return self.around[2](x, self.feed_forward)


class Encoder(nn.Module):
    def __init__(self, layer, number_of_layers):
        super().__init__()
        self.layers = repeat(layer, number_of_layers)
        self.norm = nn.LayerNorm(layer.size)

    def forward(self, x, mask):
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class Decoder(nn.Module):
    def __init__(self, layer, number_of_layers):
        super().__init__()
        self.layers = repeat(layer, number_of_layers)
        self.norm = nn.LayerNorm(layer.size)

    def forward(self, x, memory, src_mask, tgt_mask):
        for layer in self.layers:
            x = layer(x, memory, src_mask, tgt_mask)
        return self.norm(x)


class Waves(nn.Module):
    def __init__(self, width, length=512):
        super().__init__()
        place = torch.arange(length)[:, None]
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        table = torch.zeros(length, width)
        table[:, 0::2], table[:, 1::2] = torch.sin(place * rate), torch.cos(place * rate)
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[: x.size(1)]


class EncoderDecoder(nn.Module):
    def __init__(self, encoder, decoder, src_embed, tgt_embed, generator):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.src_embed, self.tgt_embed, self.generator = src_embed, tgt_embed, generator

    def forward(self, src, tgt, src_mask, tgt_mask):
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)

    def encode(self, src, src_mask):
        return self.encoder(self.src_embed(src), src_mask)

    def decode(self, memory, src_mask, tgt, tgt_mask):
        return self.decoder(self.tgt_embed(tgt), memory, src_mask, tgt_mask)


def make_model(src_vocab, tgt_vocab, N=6, d_model=512, d_ff=2048, h=8, dropout=0.1):
    attention, feed = MultiHead(h, d_model, dropout), PositionwiseFeedForward(d_model, d_ff, dropout)
    twin = copy.deepcopy
    model = EncoderDecoder(
        Encoder(EncoderLayer(d_model, twin(attention), twin(feed), dropout), N),
        Decoder(DecoderLayer(d_model, twin(attention), twin(attention), twin(feed), dropout), N),
        nn.Sequential(nn.Embedding(src_vocab, d_model), Waves(d_model)),
        nn.Sequential(nn.Embedding(tgt_vocab, d_model), Waves(d_model)),
        nn.Linear(d_model, tgt_vocab),
    )
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    return model

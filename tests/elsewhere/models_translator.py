"""Encoder and decoder of PyTorch's layers, pre-norm, with sinusoids and one method for each half."""

import torch
from torch import nn


def waves(length, dim, dtype):
    angle = torch.arange(length)[:, None] / 10000.0 ** (torch.arange(0, dim, 2) / dim)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :dim].to(dtype)


class Seq2Seq(nn.Module):
    def __init__(self, src_vocab_size, tgt_vocab_size, embed_dim, nhead, ffn_dim, num_layers):
        super().__init__()
        self.dim = embed_dim
        self.src_words = nn.Embedding(src_vocab_size, embed_dim)
        self.tgt_words = nn.Embedding(tgt_vocab_size, embed_dim)
        shape = {"dropout": 0.0, "batch_first": True, "norm_first": True}
        self.enc = nn.ModuleList()
        self.dec = nn.ModuleList()
        for _ in range(num_layers):
            self.enc.append(nn.TransformerEncoderLayer(embed_dim, nhead, ffn_dim, **shape))
            self.dec.append(nn.TransformerDecoderLayer(embed_dim, nhead, ffn_dim, **shape))
        self.score = nn.Linear(embed_dim, tgt_vocab_size)

    def encode(self, src, src_key_padding_mask=None):
        h = self.src_words(src)
        h = h + waves(src.shape[1], self.dim, h.dtype)
        for layer in self.enc:
            h = layer(h, src_key_padding_mask=src_key_padding_mask)
        return h

    def decode(self, tgt, memory, tgt_key_padding_mask=None, memory_key_padding_mask=None):
        n = tgt.shape[1]
        y = self.tgt_words(tgt)
        y = y + waves(n, self.dim, y.dtype)
        later = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
        if tgt_key_padding_mask is not None:  # a padded position may look at itself, so no row is empty
            pad = tgt_key_padding_mask[:, None, :] & ~torch.eye(n, dtype=torch.bool)
            later = (later | pad).repeat_interleave(self.dec[0].self_attn.num_heads, 0)
        for layer in self.dec:
            y = layer(y, memory, tgt_mask=later, memory_key_padding_mask=memory_key_padding_mask)
        return self.score(y)

    def forward(self, src, tgt, src_key_padding_mask=None, tgt_key_padding_mask=None):
        memory = self.encode(src, src_key_padding_mask)
        return self.decode(tgt, memory, tgt_key_padding_mask, src_key_padding_mask)

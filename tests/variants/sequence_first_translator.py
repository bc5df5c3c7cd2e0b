"""nn.Transformer with its defaults: src is (S, B) and tgt is (T, B). Sequence first throughout."""

import math

import torch
from torch import nn

PAD_IDX = 1


def generate_square_subsequent_mask(sz):
    mask = (torch.triu(torch.ones((sz, sz))) == 1).transpose(0, 1)
    return mask.float().masked_fill(mask == 0, float("-inf")).masked_fill(mask == 1, 0.0)


class PositionalEncoding(nn.Module):
    def __init__(self, emb_size, dropout=0.1, maxlen=500):
        super().__init__()
        den = torch.exp(-torch.arange(0, emb_size, 2) * math.log(10000) / emb_size)
        pos = torch.arange(0, maxlen).reshape(maxlen, 1)
        pos_embedding = torch.zeros((maxlen, emb_size))
        pos_embedding[:, 0::2] = torch.sin(pos * den)
        pos_embedding[:, 1::2] = torch.cos(pos * den)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pos_embedding", pos_embedding.unsqueeze(-2))

    def forward(self, token_embedding):
        """token_embedding: (T, B, d)"""
        return self.dropout(token_embedding + self.pos_embedding[: token_embedding.size(0), :])


class Seq2SeqTransformer(nn.Module):
    """src (S, B), tgt (T, B) -> (T, B, V)"""

    def __init__(self, num_encoder_layers, num_decoder_layers, emb_size, nhead, src_vocab_size, tgt_vocab_size,
                 dim_feedforward=512, dropout=0.1):  # fmt: skip
        super().__init__()
        self.emb_size = emb_size
        self.transformer = nn.Transformer(
            d_model=emb_size,
            nhead=nhead,
            num_encoder_layers=num_encoder_layers,
            num_decoder_layers=num_decoder_layers,
            dim_feedforward=dim_feedforward,
            dropout=dropout,
        )
        self.generator = nn.Linear(emb_size, tgt_vocab_size)
        self.src_tok_emb = nn.Embedding(src_vocab_size, emb_size)
        self.tgt_tok_emb = nn.Embedding(tgt_vocab_size, emb_size)
        self.positional_encoding = PositionalEncoding(emb_size, dropout=dropout)

    def forward(self, src, tgt, tgt_mask=None, src_key_padding_mask=None, tgt_key_padding_mask=None):
        src_emb = self.positional_encoding(self.src_tok_emb(src) * math.sqrt(self.emb_size))
        tgt_emb = self.positional_encoding(self.tgt_tok_emb(tgt) * math.sqrt(self.emb_size))
        if tgt_mask is None:
            tgt_mask = torch.ones(len(tgt), len(tgt), dtype=torch.bool).triu(1)
        outs = self.transformer(
            src_emb,
            tgt_emb,
            tgt_mask=tgt_mask,
            src_key_padding_mask=src_key_padding_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=src_key_padding_mask,
        )
        return self.generator(outs)

    def encode(self, src):
        return self.transformer.encoder(
            self.positional_encoding(self.src_tok_emb(src) * math.sqrt(self.emb_size))
        )

    def decode(self, tgt, memory, tgt_mask=None):
        if tgt_mask is None:
            tgt_mask = torch.ones(len(tgt), len(tgt), dtype=torch.bool).triu(1)
        x = self.positional_encoding(self.tgt_tok_emb(tgt) * math.sqrt(self.emb_size))
        return self.generator(self.transformer.decoder(x, memory, tgt_mask))


def train_step(model, src, tgt, optimizer):
    """One step on src (S, B) and tgt (T, B)."""
    logits = model(src, tgt[:-1])
    optimizer.zero_grad()
    out = tgt[1:]
    loss = nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), out.reshape(-1), ignore_index=0)
    loss.backward()
    optimizer.step()
    return loss

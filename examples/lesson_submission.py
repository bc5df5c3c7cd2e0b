"""A homework for the three lessons in one file: masks, attention, positions, blocks, generation, training."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

# --- masks --------------------------------------------------------------------------------------------------


def build_causal_mask(T):
    """(T, T) bool for nn.MultiheadAttention: True marks the future."""
    return torch.triu(torch.ones(T, T), diagonal=1).bool()


def subsequent_mask(size):
    """(1, size, size) bool for attention() below: True marks what may be seen."""
    future = torch.triu(torch.ones(1, size, size), diagonal=1)
    return future == 0


def padding_mask(lengths, max_len):
    """(B, max_len) bool, True at padding."""
    return torch.arange(max_len)[None, :] >= torch.as_tensor(lengths)[:, None]


def prefix_lm_mask(T, k):
    """(T, T) bool, True = blocked: causal, but the first k positions see each other."""
    mask = build_causal_mask(T)
    mask[:, :k] = False
    return mask


# --- attention, positions -----------------------------------------------------------------------------------


def attention(query, key, value, mask=None, dropout=None):
    """Scaled dot-product attention; mask is True (or 1) where attention is allowed."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = F.softmax(scores, dim=-1)
    if dropout is not None:
        weights = dropout(weights)
    return weights @ value, weights


class PositionalEncoding(nn.Module):
    """Adds sines and cosines to (B, T, d_model)."""

    def __init__(self, d_model, dropout=0.1, max_len=5000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        position = torch.arange(max_len).unsqueeze(1)
        frequency = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        table = torch.zeros(max_len, d_model)
        table[:, 0::2] = torch.sin(position * frequency)
        table[:, 1::2] = torch.cos(position * frequency[: d_model // 2])
        self.register_buffer("table", table.unsqueeze(0))

    def forward(self, x):
        return self.dropout(x + self.table[:, : x.size(1)])


# --- layers -------------------------------------------------------------------------------------------------


def clones(module, N):
    """N copies with parameters of their own; [module] * N would be one module N times."""
    return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])


class MultiHeadAttention(nn.Module):
    """Class 7's attention() in n_heads heads; mask is True where attention is allowed."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        assert d_model % n_heads == 0, "d_model must be divisible by n_heads"
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        self.linears = clones(nn.Linear(d_model, d_model), 4)  # query, key, value, output

    def forward(self, query, key, value, mask=None):
        """(B, T, d), (B, S, d), (B, S, d) -> output (B, T, d), weights (B, h, T, S)."""
        B = query.size(0)
        query, key, value = (
            linear(x).view(B, -1, self.n_heads, self.d_k).transpose(1, 2)  # (B, h, T or S, d_k)
            for linear, x in zip(self.linears, (query, key, value))
        )
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(1)  # the same mask for every head
        x, weights = attention(query, key, value, mask=mask)
        x = x.transpose(1, 2).contiguous().view(B, -1, self.n_heads * self.d_k)
        return self.linears[-1](x), weights


class FeedForward(nn.Module):
    """Expand to d_ff, ReLU, project back; every position by itself."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.expand = nn.Linear(d_model, d_ff)
        self.project = nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.project(F.relu(self.expand(x)))


class DecoderBlock(nn.Module):
    """Masked self-attention, cross-attention, feed-forward; post-norm."""

    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.masked_attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.ffn = FeedForward(d_model, d_ff)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.norm3 = nn.LayerNorm(d_model)

    def forward(self, x, encoder_out, causal_mask=None):
        attended, _ = self.masked_attn(x, x, x, attn_mask=causal_mask)
        x = self.norm1(x + attended)
        crossed, _ = self.cross_attn(x, encoder_out, encoder_out)
        x = self.norm2(x + crossed)
        return self.norm3(x + self.ffn(x))


# --- models -------------------------------------------------------------------------------------------------


class DecoderStack(nn.Module):
    """Token ids (B, T) and the encoder's output (B, S, d) -> logits (B, T, V)."""

    def __init__(self, V, d, H, d_ff, n_layers):
        super().__init__()
        self.embed = nn.Embedding(V, d)
        self.positions = PositionalEncoding(d, dropout=0.0)
        self.blocks = nn.ModuleList([DecoderBlock(d, H, d_ff) for _ in range(n_layers)])
        self.head = nn.Linear(d, V)

    def forward(self, tgt, enc_out):
        mask = build_causal_mask(tgt.shape[1])
        x = self.positions(self.embed(tgt))
        for block in self.blocks:
            x = block(x, enc_out, causal_mask=mask)
        return self.head(x)


class TinyTranslator(nn.Module):
    """The lesson's: one block, and an embedding in the place of an encoder."""

    def __init__(self, V, d, H, d_ff):
        super().__init__()
        self.embed = nn.Embedding(V, d)
        self.block = DecoderBlock(d, H, d_ff)
        self.head = nn.Linear(d, V)

    def encode(self, src):
        return self.embed(src)

    def decode_step(self, tgt, enc_out):
        mask = build_causal_mask(tgt.shape[1])
        return self.head(self.block(self.embed(tgt), enc_out, causal_mask=mask))


# --- generation ---------------------------------------------------------------------------------------------


def autoregressive_decode(model, src, max_len=8, bos=1, eos=2):
    """Greedy: BOS and what follows, at most max_len tokens in all; the source is encoded once."""
    memory = model.encode(src)
    tokens = [bos]
    while len(tokens) < max_len:
        logits = model.decode_step(torch.tensor([tokens]), memory)
        tokens.append(logits[0, -1].argmax().item())
        if tokens[-1] == eos:
            break
    return tokens


def next_token_distribution(logits, temperature=1.0, top_k=None, top_p=None):
    """(..., V) logits -> (..., V) probabilities: temperature, then top-k, then top-p on what is left."""
    if temperature == 0:  # greedy
        return F.one_hot(logits.argmax(dim=-1), logits.size(-1)).to(logits.dtype)
    logits, order = torch.sort(logits / temperature, dim=-1, descending=True)
    if top_k:  # None and 0: no limit
        logits[..., top_k:] = float("-inf")
    probs = F.softmax(logits, dim=-1)
    if top_p is not None:
        before = probs.cumsum(dim=-1) - probs  # mass of the likelier tokens
        outside = before >= top_p
        outside[..., 0] = False  # one token always stays
        probs = probs.masked_fill(outside, 0.0)
        probs = probs / probs.sum(dim=-1, keepdim=True)
    return torch.zeros_like(probs).scatter(-1, order, probs)


# --- training -----------------------------------------------------------------------------------------------


def shift_right(target):
    """[BOS, the, cat, EOS] -> decoder input [BOS, the, cat] and labels [the, cat, EOS]."""
    return target[..., :-1], target[..., 1:]


def teacher_forcing_loss(logits, labels, pad_id=0):
    """(B, T, V) logits, (B, T) labels -> mean cross-entropy over the labels that are not padding."""
    return F.cross_entropy(logits.reshape(-1, logits.size(-1)), labels.reshape(-1), ignore_index=pad_id)


def teacher_forcing_training_step(model, encoder_output, target_tokens):
    """One parallel pass over (B, T) tokens, BOS and EOS included; returns the loss."""
    decoder_input, labels = shift_right(target_tokens)
    logits = model.decode_step(decoder_input, encoder_output)  # (B, T - 1, V)
    return teacher_forcing_loss(logits, labels)

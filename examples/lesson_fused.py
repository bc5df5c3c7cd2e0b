"""The lessons on top of F.scaled_dot_product_attention: one matrix for queries, keys and values.

Every boolean mask in this file means what it means there: True may be attended to.
"""

from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD_ID, BOS_ID, EOS_ID = 0, 1, 2


# Masks: True = allowed ------------------------------------------------------------------------------


def subsequent_mask(size: int) -> Tensor:
    """(size, size): position i may look at j <= i."""
    return torch.ones(size, size, dtype=torch.bool).tril()


def sequence_mask(lengths: Tensor, max_len: int) -> Tensor:
    """(B,) lengths -> (B, max_len), True for real tokens."""
    return torch.arange(max_len) < lengths.unsqueeze(1)


def prefix_lm_mask(seq_len: int, prefix_len: int) -> Tensor:
    """(seq_len, seq_len), True = allowed: whatever lies in the prefix or not in the future."""
    in_prefix = torch.arange(seq_len) < prefix_len
    return subsequent_mask(seq_len) | in_prefix


def build_causal_mask(T: int) -> Tensor:
    """The opposite of subsequent_mask, for nn.MultiheadAttention: (T, T), True = blocked."""
    return ~subsequent_mask(T)


# Attention ------------------------------------------------------------------------------------------


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """(..., T, d), (..., S, d), (..., S, d_v) -> (..., T, d_v)."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class MultiHeadAttention(nn.Module):
    """in_proj holds W_q, W_k and W_v on top of each other."""

    def __init__(self, d_model: int, n_heads: int, dropout: float = 0.0):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model={d_model} is not a multiple of n_heads={n_heads}")
        self.n_heads = n_heads
        self.dropout = dropout
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Heads of queries, keys and values; in self-attention with a single product."""
        if query is key and key is value:
            projected = self.in_proj(query).chunk(3, dim=-1)
        else:
            weights, biases = self.in_proj.weight.chunk(3), self.in_proj.bias.chunk(3)
            projected = [F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases)]
        return tuple(x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for x in projected)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, d), (B, S, d), (B, S, d) -> (B, T, d); mask (T, S), (B, T, S) or (B, 1, T, S)."""
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(1)
        q, k, v = self.project(query, key, value)  # (B, h, T or S, d / h)
        p = self.dropout if self.training else 0.0
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)
        return self.out_proj(heads.transpose(1, 2).flatten(2))


class CausalSelfAttention(nn.Module):
    """As GPT has it: one sequence, and a triangle that no caller can forget."""

    def __init__(self, n_embd: int, n_head: int):
        super().__init__()
        assert n_embd % n_head == 0, "n_head must divide n_embd"
        self.n_head = n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.shape
        qkv = self.c_attn(x).view(B, T, 3, self.n_head, C // self.n_head)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, h, T, C / h)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class CrossAttention(nn.Module):
    """Queries from the decoder; keys and values, fused, from the encoder."""

    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        assert d_model % n_heads == 0, "n_heads must divide d_model"
        self.n_heads = n_heads
        self.to_q = nn.Linear(d_model, d_model)
        self.to_kv = nn.Linear(d_model, 2 * d_model)
        self.to_out = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, memory: Tensor, memory_mask: Tensor | None = None) -> Tensor:
        """memory_mask: (B, S), True for real tokens of the source."""
        q, k, v = (
            z.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for z in (self.to_q(x), *self.to_kv(memory).chunk(2, dim=-1))
        )
        mask = None if memory_mask is None else memory_mask[:, None, None, :]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # (B, h, T, d / h)
        return self.to_out(y.transpose(1, 2).flatten(2))


# Positions, feed-forward, block -----------------------------------------------------------------------


class PositionalEncoding(nn.Module):
    """Sine and cosine of the same angle side by side, added to (B, T, d_model)."""

    def __init__(self, d_model: int, max_len: int = 512):
        super().__init__()
        exponent = torch.arange(0, d_model, 2) / d_model
        angle = torch.arange(max_len).unsqueeze(1) / 10000.0**exponent  # (max_len, d_model / 2)
        pairs = torch.stack([angle.sin(), angle.cos()], dim=-1)
        self.register_buffer("pe", pairs.flatten(1)[:, :d_model], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.size(1) > self.pe.size(0):
            raise ValueError(f"{x.size(1)} positions, but max_len is {self.pe.size(0)}")
        return x + self.pe[: x.size(1)]


class FeedForward(nn.Sequential):
    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0):
        super().__init__(
            nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model)
        )


class DecoderBlock(nn.Module):
    """Post-norm, three times: attend to oneself, attend to the memory, think."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int, dropout: float = 0.1):
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, n_heads, dropout)
        self.cross_attention = CrossAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.norms = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(3)])
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, src_mask: Tensor | None = None
    ) -> Tensor:
        """tgt_mask: (T, T) or (B, T, T), src_mask: (B, S); True = allowed."""
        x = self.norms[0](x + self.dropout(self.self_attention(x, x, x, tgt_mask)))
        x = self.norms[1](x + self.dropout(self.cross_attention(x, memory, src_mask)))
        return self.norms[2](x + self.dropout(self.feed_forward(x)))


def clones(module: nn.Module, N: int) -> nn.ModuleList:
    return nn.ModuleList([deepcopy(module) for _ in range(N)])


# Models ---------------------------------------------------------------------------------------------


class DecoderStack(nn.Module):
    def __init__(self, V: int, d: int, H: int, d_ff: int, n_layers: int, max_len: int = 512):
        super().__init__()
        self.embed = nn.Embedding(V, d)
        self.positions = PositionalEncoding(d, max_len)
        self.layers = clones(DecoderBlock(d, H, d_ff), n_layers)
        self.to_logits = nn.Linear(d, V, bias=False)

    def forward(self, tgt: Tensor, enc_out: Tensor, src_mask: Tensor | None = None) -> Tensor:
        """(B, T), (B, S, d) -> (B, T, V); src_mask (B, S), True for real tokens."""
        x = self.positions(self.embed(tgt))
        mask = subsequent_mask(tgt.size(1))
        for layer in self.layers:
            x = layer(x, enc_out, mask, src_mask)
        return self.to_logits(x)


class TinyTranslator(nn.Module):
    """An encoder that only embeds, and a stack that decodes."""

    def __init__(self, V: int, d: int, H: int, d_ff: int, n_layers: int = 1, pad_id: int = PAD_ID):
        super().__init__()
        self.pad_id = pad_id
        self.src_embed = nn.Embedding(V, d)
        self.positions = PositionalEncoding(d)
        self.decoder = DecoderStack(V, d, H, d_ff, n_layers)

    def encode(self, src: Tensor) -> Tensor:
        return self.positions(self.src_embed(src))

    def decode_step(self, tgt: Tensor, enc_out: Tensor, src_mask: Tensor | None = None) -> Tensor:
        return self.decoder(tgt, enc_out, src_mask)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        return self.decode_step(tgt, self.encode(src), src != self.pad_id)


# Generation -----------------------------------------------------------------------------------------


@torch.inference_mode()
def autoregressive_decode(model: TinyTranslator, src: Tensor, max_len: int = 20) -> Tensor:
    """src (1, S) -> (1, t), BOS first, EOS last unless max_len tokens came before it."""
    memory = model.encode(src)
    out = torch.tensor([[BOS_ID]])
    while out.size(1) < max_len and out[0, -1] != EOS_ID:
        logits = model.decode_step(out, memory)  # (1, t, V)
        out = torch.cat([out, logits[:, -1:].argmax(dim=-1)], dim=1)
    return out


def next_token_distribution(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """(V,) or (B, V) logits to probabilities.  Temperature, then the k likeliest, then the nucleus."""
    if temperature <= 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    logits = logits / temperature
    if top_k is not None:
        if top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {top_k}")
        kept = logits.topk(min(top_k, logits.size(-1)), dim=-1)
        logits = torch.full_like(logits, -torch.inf).scatter(-1, kept.indices, kept.values)
    probs = logits.softmax(dim=-1)
    if top_p is not None:
        p, index = probs.sort(dim=-1, descending=True)
        nucleus = F.pad(p.cumsum(dim=-1)[..., :-1], (1, 0)) < top_p  # mass ahead of each token
        nucleus[..., 0] = True
        p = torch.where(nucleus, p, 0.0)
        probs = torch.zeros_like(p).scatter(-1, index, p / p.sum(dim=-1, keepdim=True))
    return probs


def sample_next_token(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """(B, V) -> (B,) token ids."""
    probs = next_token_distribution(logits, temperature, top_k, top_p)
    return torch.multinomial(probs, num_samples=1).squeeze(-1)


# Training -------------------------------------------------------------------------------------------


def shift_right(target: Tensor) -> Tensor:
    """What the decoder is shown: the target, BOS included, without its last token."""
    return target[..., :-1]


def teacher_forcing_loss(logits: Tensor, labels: Tensor, ignore_index: int = PAD_ID) -> Tensor:
    """logits (B, T, V), labels (B, T): the mean over what is not padding."""
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=ignore_index)


def teacher_forcing_step(model: TinyTranslator, src: Tensor, target: Tensor) -> Tensor:
    """The loss of one batch; all positions in one forward pass."""
    return teacher_forcing_loss(model(src, shift_right(target)), target[:, 1:])

"""The lessons in einsum: every projection is a bare nn.Parameter, every mask is added to the scores.

b batch, q queries, k keys, d model width, h heads, e width of a head, f feed-forward width, v words.
"""

import copy
import math

import torch
from torch import nn

NEG_INF = float("-inf")
PAD, BOS, EOS = 0, 1, 2

# ---------------------------------------------------------------------------------------------- masks


def create_causal_mask(seq_len):
    """M of softmax(QKᵀ/√d + M): (seq_len, seq_len) floats, 0 if i >= j and -inf if i < j."""
    i = torch.arange(seq_len)
    return torch.zeros(seq_len, seq_len).masked_fill(i[:, None] < i[None, :], NEG_INF)


def look_ahead_mask(size):
    """The same as numbers: 1 marks what is still to come and must be hidden."""
    i = torch.arange(size)
    return (i[:, None] < i[None, :]).float()


def prefix_lm_mask(n, prefix_len):
    """Additive as well: the first prefix_len tokens are open to all, the others are causal."""
    mask = create_causal_mask(n)
    mask[:, :prefix_len] = 0.0
    return mask


def make_pad_mask(ids, pad_id=PAD):
    """(B, S) ids -> (B, S) bool, True at padding."""
    return ids.eq(pad_id)


def hide(padding):
    """(B, S) bool, True at padding -> (B, 1, 1, S) floats, added to the scores of every head and query."""
    return torch.zeros(padding.shape).masked_fill(padding, NEG_INF)[:, None, None, :]


# ------------------------------------------------------------------------------------------ attention


def masked_attention(Q, K, V, mask=None):
    """softmax(QKᵀ/√d_k + mask) V and its weights; mask is additive, 0 or -inf."""
    scores = torch.einsum("...qe,...ke->...qk", Q, K) / math.sqrt(Q.shape[-1])
    if mask is not None:
        if not mask.is_floating_point():
            raise TypeError("the mask is added to the scores: 0 or -inf, not True or 1")
        scores = scores + mask
    weights = torch.softmax(scores, dim=-1)
    return torch.einsum("...qk,...ke->...qe", weights, V), weights


def weight(*shape, fan_in):
    """A matrix with the spread that keeps variances as they are."""
    return nn.Parameter(torch.randn(*shape) / math.sqrt(fan_in))


class MultiHeadAttention(nn.Module):
    """Four tensors: three carry d features into h heads of width e, the fourth carries them back."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads != 0:
            raise ValueError(f"{n_heads} heads do not divide d_model = {d_model}")
        d_head = d_model // n_heads
        self.W_Q = weight(n_heads, d_model, d_head, fan_in=d_model)
        self.W_K = weight(n_heads, d_model, d_head, fan_in=d_model)
        self.W_V = weight(n_heads, d_model, d_head, fan_in=d_model)
        self.W_O = weight(n_heads, d_head, d_model, fan_in=d_model)
        self.b_Q = nn.Parameter(torch.zeros(n_heads, 1, d_head))
        self.b_K = nn.Parameter(torch.zeros(n_heads, 1, d_head))
        self.b_V = nn.Parameter(torch.zeros(n_heads, 1, d_head))
        self.b_O = nn.Parameter(torch.zeros(d_model))

    def forward(self, query, key, value, mask=None):
        """mask: added to the scores (b, h, q, k)."""
        Q = torch.einsum("bqd,hde->bhqe", query, self.W_Q) + self.b_Q
        K = torch.einsum("bkd,hde->bhke", key, self.W_K) + self.b_K
        V = torch.einsum("bkd,hde->bhke", value, self.W_V) + self.b_V
        heads, weights = masked_attention(Q, K, V, mask)  # (b, h, q, e), (b, h, q, k)
        return torch.einsum("bhqe,hed->bqd", heads, self.W_O) + self.b_O, weights


# --------------------------------------------------------------------------------------- other layers


def sinusoidal_encoding(length, d_model):
    """(length, d_model): sin at even coordinates, cos at odd ones; 2i and 2i + 1 share a frequency."""
    pos = torch.arange(length, dtype=torch.float64)
    c = torch.arange(d_model)
    angle = torch.einsum("p,c->pc", pos, 10000.0 ** (-2.0 * (c // 2).double() / d_model))
    return torch.where(c % 2 == 0, angle.sin(), angle.cos()).float()


class LayerNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.beta = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x):
        x = x - x.mean(dim=-1, keepdim=True)
        variance = x.square().mean(dim=-1, keepdim=True)
        return self.gamma * x / torch.sqrt(variance + self.eps) + self.beta


class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.W_1, self.b_1 = weight(d_model, d_ff, fan_in=d_model), nn.Parameter(torch.zeros(d_ff))
        self.W_2, self.b_2 = weight(d_ff, d_model, fan_in=d_ff), nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        hidden = torch.relu(torch.einsum("...d,df->...f", x, self.W_1) + self.b_1)
        return torch.einsum("...f,fd->...d", hidden, self.W_2) + self.b_2


def clones(module, N):
    """N layers that start equal and are trained apart."""
    return nn.ModuleList(copy.deepcopy(module) for _ in range(N))


# --------------------------------------------------------------------------------------------- blocks


class EncoderLayer(nn.Module):
    """Self-attention over the whole source, then feed-forward."""

    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attn = MultiHeadAttention(d_model, n_heads)
        self.ff = PositionwiseFeedForward(d_model, d_ff)
        self.ln_attn, self.ln_ff = LayerNorm(d_model), LayerNorm(d_model)

    def forward(self, x, mask=None):
        x = self.ln_attn(x + self.attn(x, x, x, mask)[0])
        return self.ln_ff(x + self.ff(x))


class DecoderLayer(nn.Module):
    """x₁ = LN(x + MaskedSelfAttn(x)), x₂ = LN(x₁ + CrossAttn(x₁, memory)), x₃ = LN(x₂ + FFN(x₂))."""

    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, n_heads)
        self.cross_attn = MultiHeadAttention(d_model, n_heads)
        self.ff = PositionwiseFeedForward(d_model, d_ff)
        self.ln_self, self.ln_cross, self.ln_ff = LayerNorm(d_model), LayerNorm(d_model), LayerNorm(d_model)

    def forward(self, x, memory, self_mask=None, memory_mask=None):
        """Both masks are added to scores: self_mask to (b, h, T, T), memory_mask to (b, h, T, S)."""
        x = self.ln_self(x + self.self_attn(x, x, x, self_mask)[0])
        x = self.ln_cross(x + self.cross_attn(x, memory, memory, memory_mask)[0])
        return self.ln_ff(x + self.ff(x))


# --------------------------------------------------------------------------------------------- models


class Embedding(nn.Module):
    """Scaled token vectors plus the encoding of their positions."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.d_model = d_model

    def forward(self, ids):
        return self.tokens(ids) * math.sqrt(self.d_model) + sinusoidal_encoding(ids.shape[1], self.d_model)


class Decoder(nn.Module):
    """Token ids (B, T) and memory (B, S, d) -> logits (B, T, V)."""

    def __init__(self, vocab_size, d_model, n_heads, d_ff, n_layers):
        super().__init__()
        self.embedding = Embedding(vocab_size, d_model)
        self.layers = clones(DecoderLayer(d_model, n_heads, d_ff), n_layers)
        self.W_vocab = weight(d_model, vocab_size, fan_in=d_model)

    def forward(self, tgt, memory, memory_mask=None):
        """memory_mask: additive, (B, 1, 1, S)."""
        x = self.embedding(tgt)
        for layer in self.layers:
            x = layer(x, memory, create_causal_mask(tgt.shape[1]), memory_mask)
        return torch.einsum("btd,dv->btv", x, self.W_vocab)


class Seq2Seq(nn.Module):
    """encode and decode_step for generation, forward for training."""

    def __init__(self, vocab_size, d_model, n_heads, d_ff, n_layers=1, pad_id=PAD):
        super().__init__()
        self.pad_id = pad_id
        self.embedding = Embedding(vocab_size, d_model)
        self.encoder = clones(EncoderLayer(d_model, n_heads, d_ff), n_layers)
        self.decoder = Decoder(vocab_size, d_model, n_heads, d_ff, n_layers)

    def encode(self, src):
        x = self.embedding(src)
        for layer in self.encoder:
            x = layer(x, hide(make_pad_mask(src, self.pad_id)))
        return x

    def decode_step(self, tgt, memory, memory_mask=None):
        return self.decoder(tgt, memory, memory_mask)

    def forward(self, src, tgt):
        return self.decode_step(tgt, self.encode(src), hide(make_pad_mask(src, self.pad_id)))


# ----------------------------------------------------------------------------------------- generation


@torch.no_grad()
def greedy_decode(model, src, max_new_tokens, bos_id=BOS, eos_id=EOS):
    """(B, S) -> (B, at most 1 + max_new_tokens); a row that has ended is filled up with EOS."""
    memory, memory_mask = model.encode(src), hide(make_pad_mask(src))
    ys = torch.full((src.shape[0], 1), bos_id)
    ended = torch.zeros(src.shape[0], dtype=torch.bool)
    for _ in range(max_new_tokens):
        choice = model.decode_step(ys, memory, memory_mask)[:, -1].argmax(dim=-1)
        choice = choice.masked_fill(ended, eos_id)
        ys = torch.cat([ys, choice[:, None]], dim=1)
        ended = ended | (choice == eos_id)
        if ended.all():
            break
    return ys


def next_token_probs(logits, temperature=1.0, top_k=0, top_p=1.0):
    """(B, V) -> (B, V).  A token stays if fewer than top_k, and less mass than top_p, are ahead of it."""
    if temperature <= 0:
        raise ValueError("temperature must be positive; take the argmax for greedy decoding")
    ranked, order = (logits / temperature).sort(dim=-1, descending=True, stable=True)
    if top_k > 0:
        rank = torch.arange(ranked.shape[-1])
        ranked = ranked.masked_fill(rank >= top_k, NEG_INF)
    p = ranked.softmax(dim=-1)
    if top_p < 1.0:
        ahead = p.cumsum(dim=-1).roll(1, dims=-1)
        ahead[..., 0] = -1.0  # nothing is ahead of the first
        p = p.masked_fill(ahead >= top_p, 0.0)
        p = p / p.sum(dim=-1, keepdim=True)
    return p.gather(-1, order.argsort(dim=-1))


# ------------------------------------------------------------------------------------------- training


def shift_right(target, bos_id=BOS):
    """(B, T) labels -> (B, T) inputs: BOS in front, the last label gone."""
    return torch.cat([torch.full_like(target[:, :1], bos_id), target[:, :-1]], dim=1)


def sequence_loss(logits, labels, pad_id=PAD):
    """Mean of -log p(label) over the labels that are not padding; logits (B, T, V), labels (B, T)."""
    log_p = logits.log_softmax(dim=-1).gather(-1, labels[..., None])[..., 0]
    real = labels.ne(pad_id)
    return -(log_p * real).sum() / real.sum()


def training_step(model, optimizer, src, target):
    """One step of teacher forcing; target (B, T) starts with BOS and ends in EOS."""
    model.train()
    labels = target[:, 1:]
    optimizer.zero_grad()
    loss = sequence_loss(model(src, shift_right(labels)), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


def scheduled_sampling(gold, predicted, sampling_prob):
    """Each gold token is replaced by the model's own with probability sampling_prob."""
    own = torch.rand(gold.shape) < sampling_prob
    return torch.where(own, predicted, gold)

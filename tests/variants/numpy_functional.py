"""NumPy with batches, all float64. Layers are functions of explicit weights; classes only hold these."""

import numpy as np


def _softmax(x, axis=-1):
    x = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return x / np.sum(x, axis=axis, keepdims=True)


def build_causal_mask(T):
    """bool (T, T): True = blocked."""
    return ~np.tri(T, dtype=np.bool_)


def padding_mask(lengths, max_len):
    """bool (B, max_len): True = padding."""
    return np.arange(max_len) >= np.asarray(lengths)[..., None]


def scaled_dot_product(Q, K, V, mask_blocked=None):
    scores = np.einsum("...td,...sd->...ts", Q, K) / np.sqrt(Q.shape[-1])
    if mask_blocked is not None:
        scores = np.where(mask_blocked, -np.inf, scores)
    weights = _softmax(scores)
    return np.einsum("...ts,...sv->...tv", weights, V), weights


def masked_self_attention(Q, K, V):
    return scaled_dot_product(Q, K, V, build_causal_mask(Q.shape[-2]))


def heads(x, n):
    return np.stack(np.split(x, n, axis=-1), axis=1)


def mha(x, z, weights, n, blocked=None):
    q, k, v = (heads(a @ w, n) for a, w in zip((x, z, z), weights[:3]))
    out, _ = scaled_dot_product(q, k, v, blocked)
    return np.concatenate(list(out.swapaxes(0, 1)), axis=-1) @ weights[3]


def norm(x, gain, shift, eps=1e-5):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * gain + shift


class LayerNorm:
    def __init__(self, d_model):
        self.gamma, self.beta = np.ones(d_model), np.zeros(d_model)

    def __call__(self, x):
        return norm(x, self.gamma, self.beta)


class CausalSelfAttention:
    def __init__(self, d_model, n_heads, seed=0):
        if d_model % n_heads:
            raise ValueError("d_model % n_heads != 0")
        rng = np.random.default_rng(seed)
        self.n_heads = n_heads
        self.weights = [rng.standard_normal((d_model, d_model)) / np.sqrt(d_model) for _ in range(4)]

    def __call__(self, x):
        return mha(x, x, self.weights, self.n_heads, build_causal_mask(x.shape[1]))


class DecoderBlock:
    def __init__(self, d_model, n_heads, d_ff, seed=0):
        rng = np.random.default_rng(seed)
        self.n_heads = n_heads
        square = lambda: rng.standard_normal((d_model, d_model)) / np.sqrt(d_model)  # noqa: E731
        self.own, self.cross = [square() for _ in range(4)], [square() for _ in range(4)]
        self.w1, self.b1 = rng.standard_normal((d_model, d_ff)) / np.sqrt(d_model), np.zeros(d_ff)
        self.w2, self.b2 = rng.standard_normal((d_ff, d_model)) / np.sqrt(d_ff), np.zeros(d_model)
        self.gains, self.shifts = [np.ones(d_model) for _ in range(3)], [np.zeros(d_model) for _ in range(3)]

    def __call__(self, x, memory, memory_blocked=None):
        """memory_blocked: bool (B, 1, 1, S), True = blocked."""
        x = norm(
            x + mha(x, x, self.own, self.n_heads, build_causal_mask(x.shape[1])),
            self.gains[0],
            self.shifts[0],
        )
        crossed = mha(x, memory, self.cross, self.n_heads, memory_blocked)
        x = norm(x + crossed, self.gains[1], self.shifts[1])
        inner = np.maximum(0.0, x @ self.w1 + self.b1) @ self.w2 + self.b2
        return norm(x + inner, self.gains[2], self.shifts[2])


def mix_tokens(gold, predicted, p, rng=None):
    """Scheduled sampling: with probability p a token is the model's."""
    rng = rng or np.random.default_rng()
    return np.where(rng.random(np.shape(gold)) < p, predicted, gold)


def sample_from_logits(logits, temperature=1.0, rng=None):
    """(B, V) -> (B,) by the inverse of the cumulative distribution."""
    if temperature == 0:
        return np.argmax(logits, -1)
    rng = rng or np.random.default_rng()
    cdf = np.cumsum(_softmax(np.asarray(logits, dtype=np.float64) / temperature), -1)
    return np.minimum((cdf < rng.random((*cdf.shape[:-1], 1)) * cdf[..., -1:]).sum(-1), cdf.shape[-1] - 1)

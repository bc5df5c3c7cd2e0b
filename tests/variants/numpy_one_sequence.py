import numpy as np

# Lecture code: one sentence at a time, nothing but numpy.


def softmax(z):
    z = z - z.max(axis=-1, keepdims=True)
    e = np.exp(z)
    return e / e.sum(axis=-1, keepdims=True)


def tril_mask(n):
    return np.tri(n, dtype=bool)


def prefix_mask(n, prefix_len):
    """True = blocked. The prefix is seen by everyone, the rest is causal."""
    rows, cols = np.indices((n, n))
    return (cols > rows) & (cols >= prefix_len)


def attention(Q, K, V, allowed=None):
    S = Q @ K.T / np.sqrt(K.shape[1])
    if allowed is not None:
        S = np.where(allowed, S, -np.inf)
    A = softmax(S)
    return A @ V, A


def causal_attention(Q, K, V):
    return attention(Q, K, V, tril_mask(len(Q)))[0]


def layer_norm(x, gamma, beta, eps=1e-5):
    mu = x.mean(axis=-1, keepdims=True)
    var = ((x - mu) ** 2).mean(axis=-1, keepdims=True)
    return gamma * (x - mu) / np.sqrt(var + eps) + beta


def positional_encoding(seq_len, d_model):
    pe = np.empty((seq_len, d_model))
    for pos in range(seq_len):
        for i in range(d_model):
            angle = pos / 10000 ** (2 * (i // 2) / d_model)
            pe[pos, i] = np.sin(angle) if i % 2 == 0 else np.cos(angle)
    return pe


class FeedForward:
    def __init__(self, d_model, d_ff, seed=0):
        rng = np.random.default_rng(seed)
        self.W1 = rng.normal(0, np.sqrt(2 / d_model), (d_model, d_ff))
        self.b1 = np.zeros(d_ff)
        self.W2 = rng.normal(0, np.sqrt(1 / d_ff), (d_ff, d_model))
        self.b2 = np.zeros(d_model)

    def forward(self, x):
        return np.maximum(x @ self.W1 + self.b1, 0) @ self.W2 + self.b2


class MultiHeadAttention:
    def __init__(self, d_model, n_heads, seed=0):
        rng = np.random.default_rng(seed)
        self.n_heads = n_heads
        self.Wq, self.Wk, self.Wv, self.Wo = rng.normal(0, d_model**-0.5, (4, d_model, d_model))

    def forward(self, query, key, value, allowed=None):
        q, k, v = query @ self.Wq, key @ self.Wk, value @ self.Wv
        d = q.shape[1] // self.n_heads
        out = np.zeros_like(query, dtype=float)
        weights = np.zeros((self.n_heads, len(query), len(key)))
        for h in range(self.n_heads):
            cut = slice(h * d, (h + 1) * d)
            out[:, cut], weights[h] = attention(q[:, cut], k[:, cut], v[:, cut], allowed)
        return out @ self.Wo, weights


def greedy_token(logits):
    return int(np.argmax(logits))


def sample_token(logits, temperature=1.0, top_k=None, top_p=None, rng=None):
    """temperature must be positive; use greedy_token() for the limit of zero."""
    if temperature <= 0:
        raise ValueError(f"temperature must be positive, not {temperature}; use greedy_token()")
    rng = np.random.default_rng() if rng is None else rng
    z = np.asarray(logits, dtype=float) / temperature
    order = np.argsort(-z, kind="stable")
    if top_k is not None:
        order = order[: max(1, top_k)]
    p = softmax(z[order])
    if top_p is not None:
        n = int(np.searchsorted(np.cumsum(p), top_p)) + 1
        order, p = order[:n], p[:n] / p[:n].sum()
    return int(rng.choice(order, p=p))


def cross_entropy(logits, targets, pad_id=0):
    """Mean over the targets that are no padding."""
    logits, targets = np.asarray(logits, dtype=float), np.asarray(targets)
    top = logits.max(-1, keepdims=True)
    log_z = np.log(np.exp(logits - top).sum(-1)) + top[:, 0]
    nll = log_z - logits[np.arange(len(targets)), np.clip(targets, 0, None)]
    real = targets != pad_id
    return nll[real].mean()


def shift_right(target, bos_id):
    """Labels without BOS in, decoder input out."""
    return np.concatenate([[bos_id], target[:-1]]).astype(int)

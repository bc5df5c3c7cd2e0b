"""NumPy, one sequence at a time: (T, d) and (S, d)."""

import numpy as np


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


class DecoderBlock:
    def __init__(self, d_model, n_heads, d_ff):
        self.n_heads = n_heads
        rng = np.random.default_rng()
        self.own = {name: rng.normal(0, d_model**-0.5, (d_model, d_model)) for name in ("q", "k", "v", "o")}
        self.cross = {name: rng.normal(0, d_model**-0.5, (d_model, d_model)) for name in ("q", "k", "v", "o")}
        self.W1, self.b1 = rng.normal(0, d_model**-0.5, (d_model, d_ff)), np.zeros(d_ff)
        self.W2, self.b2 = rng.normal(0, d_ff**-0.5, (d_ff, d_model)), np.zeros(d_model)
        self.gamma, self.beta = np.ones((3, d_model)), np.zeros((3, d_model))

    def attend(self, w, x, z, mask=None):
        outputs = []
        for q, k, v in zip(
            *(np.split(a, self.n_heads, axis=1) for a in (x @ w["q"], z @ w["k"], z @ w["v"])), strict=True
        ):
            scores = q @ k.T / np.sqrt(q.shape[1])
            if mask is not None:
                scores = np.where(mask, -np.inf, scores)
            outputs.append(softmax(scores) @ v)
        return np.concatenate(outputs, axis=1) @ w["o"]

    def norm(self, n, x):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * self.gamma[
            n
        ] + self.beta[n]

    def forward(self, x, memory):
        """(T, d), (S, d) -> (T, d)."""
        future = np.triu(np.ones((len(x), len(x)), dtype=bool), k=1)
        x = self.norm(0, x + self.attend(self.own, x, x, future))
        x = self.norm(1, x + self.attend(self.cross, x, memory))
        return self.norm(2, x + np.maximum(x @ self.W1 + self.b1, 0) @ self.W2 + self.b2)

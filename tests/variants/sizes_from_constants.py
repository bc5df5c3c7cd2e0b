"""A small language model whose sizes are constants at the top of the file, as in a script that trains at the end."""

import torch
import torch.nn as nn
from torch.nn import functional as F

batch_size = 32
block_size = 24
n_embd = 32
n_head = 4
n_layer = 3
vocab_size = 50
dropout = 0.2


class Head(nn.Module):
    """One head of causal self-attention."""

    def __init__(self, head_size):
        super().__init__()
        self.to_q = nn.Linear(n_embd, head_size, bias=False)
        self.to_k = nn.Linear(n_embd, head_size, bias=False)
        self.to_v = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer("past", torch.ones(block_size, block_size).tril())
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        T = x.shape[1]
        scores = self.to_q(x) @ self.to_k(x).mT / self.to_q.out_features**0.5
        weights = scores.masked_fill(self.past[:T, :T] == 0, float("-inf")).softmax(-1)
        return self.drop(weights) @ self.to_v(x)


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, head_size):
        super().__init__()
        self.heads = nn.ModuleList(Head(head_size) for _ in range(num_heads))
        self.mix = nn.Linear(num_heads * head_size, n_embd)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        return self.drop(self.mix(torch.cat([head(x) for head in self.heads], dim=-1)))


class FeedForward(nn.Module):
    def __init__(self, n_embd):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd), nn.Dropout(dropout)
        )

    def forward(self, x):
        return self.net(x)


class Block(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.attention = MultiHeadAttention(n_head, n_embd // n_head)
        self.feed_forward = FeedForward(n_embd)
        self.before_attention, self.before_feed_forward = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)

    def forward(self, x):
        x = x + self.attention(self.before_attention(x))
        return x + self.feed_forward(self.before_feed_forward(x))


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*[Block(n_embd, n_head=n_head) for _ in range(n_layer)])
        self.norm, self.head = nn.LayerNorm(n_embd), nn.Linear(n_embd, vocab_size)

    def forward(self, idx, targets=None):
        x = self.tokens(idx) + self.places(torch.arange(idx.shape[1], device=idx.device))
        logits = self.head(self.norm(self.blocks(x)))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def generate(self, idx, max_new_tokens):
        for _ in range(max_new_tokens):
            logits, _ = self(idx[:, -block_size:])
            idx = torch.cat([idx, torch.multinomial(logits[:, -1].softmax(-1), 1)], dim=1)
        return idx

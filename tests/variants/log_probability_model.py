"""A character model that ends in a log-softmax. Positions are sinusoids, padding has a mask of its own."""

import torch
from torch import nn
from torch.nn import functional as F


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        assert dim % heads == 0
        self.heads = heads
        self.fused = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, attention_mask=None):
        """attention_mask: (B, T), 1 = token, 0 = padding."""
        B, T, _ = x.shape
        q, k, v = self.fused(x).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        allowed = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
        if attention_mask is not None:
            allowed = allowed & attention_mask.bool()[:, None, None, :]
            # A padded query looks at itself, so that no row is empty.
            allowed = allowed | torch.eye(T, dtype=torch.bool, device=x.device)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        return self.out(y.permute(0, 2, 1, 3).reshape(B, T, -1))


class CausalTransformerBlock(nn.Module):
    """Post-norm."""

    def __init__(self, dim, heads, mlp_dim, dropout=0.0):
        super().__init__()
        self.attention = SelfAttention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, mlp_dim), nn.ReLU(), nn.Linear(mlp_dim, dim))
        self.norms = nn.ModuleList([nn.LayerNorm(dim), nn.LayerNorm(dim)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, attention_mask=None):
        """attention_mask: (B, T), 1 = token, 0 = padding."""
        x = self.norms[0](x + self.dropout(self.attention(x, attention_mask)))
        return self.norms[1](x + self.dropout(self.mlp(x)))


class CharTransformer(nn.Module):
    def __init__(self, vocab_size, dim, heads, depth, mlp_dim, max_len=128, dropout=0.0):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim)
        rate = 10000.0 ** (-torch.arange(0, dim, 2) / dim)
        angle = torch.arange(max_len)[:, None] * rate
        self.register_buffer("place", torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :dim])
        self.blocks = nn.ModuleList(
            CausalTransformerBlock(dim, heads, mlp_dim, dropout) for _ in range(depth)
        )
        self.head = nn.Linear(dim, vocab_size)

    def forward(self, ids, attention_mask=None, labels=None):
        """Log-probabilities (B, T, V); with labels (already shifted, 0 is ignored) the loss as well."""
        if ids.shape[1] > self.place.shape[0]:
            raise ValueError("too long")
        x = self.embed(ids) + self.place[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, attention_mask)
        log_probs = F.log_softmax(self.head(x), dim=-1)
        if labels is None:
            return log_probs
        return log_probs, F.nll_loss(log_probs.flatten(0, 1), labels.flatten(), ignore_index=0)

    @torch.no_grad()
    def generate(self, ids, max_new_tokens, eos_id=2):
        """One row: stops after EOS."""
        for _ in range(max_new_tokens):
            if ids.shape[1] == self.place.shape[0]:
                break
            new = self(ids)[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, new], 1)
            if (new == eos_id).all():
                break
        return ids

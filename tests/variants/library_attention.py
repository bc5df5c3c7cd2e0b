import torch
from torch import nn


def causal_mask(sz: int, device=None) -> torch.Tensor:
    """bool [sz, sz], True = not allowed to attend (convention of nn.MultiheadAttention)."""
    i = torch.arange(sz, device=device)
    return i[None, :] > i[:, None]


def key_padding_mask(tokens: torch.Tensor, pad_idx: int = 0) -> torch.Tensor:
    """bool [B, S], True = padding."""
    return tokens.eq(pad_idx)


class CrossAttention(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, dropout=dropout, batch_first=True)

    def forward(self, x, memory, memory_key_padding_mask=None):
        return self.attn(x, memory, memory, key_padding_mask=memory_key_padding_mask)


class CausalSelfAttention(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, dropout=dropout, batch_first=True)

    def forward(self, x):
        mask = causal_mask(x.size(1), x.device)
        return self.attn(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]


class EncoderLayer(nn.Module):
    def __init__(self, embed_dim, num_heads, ffn_dim, dropout=0.1):
        super().__init__()
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, dropout=dropout, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(embed_dim, ffn_dim), nn.ReLU(), nn.Dropout(dropout), nn.Linear(ffn_dim, embed_dim)
        )
        self.ln_attn = nn.LayerNorm(embed_dim)
        self.ln_mlp = nn.LayerNorm(embed_dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, src_key_padding_mask=None):
        h, _ = self.attn(x, x, x, key_padding_mask=src_key_padding_mask, need_weights=False)
        x = self.ln_attn(x + self.drop(h))
        return self.ln_mlp(x + self.drop(self.mlp(x)))


class DecoderLayer(nn.Module):
    """Post-norm. All masks as in PyTorch: True = ignore."""

    def __init__(self, embed_dim, num_heads, ffn_dim, dropout=0.1):
        super().__init__()
        self.self_attn = CausalSelfAttention(embed_dim, num_heads, dropout)
        self.cross_attn = CrossAttention(embed_dim, num_heads, dropout)
        self.mlp = nn.Sequential(
            nn.Linear(embed_dim, ffn_dim), nn.ReLU(), nn.Dropout(dropout), nn.Linear(ffn_dim, embed_dim)
        )
        self.norms = nn.ModuleDict({k: nn.LayerNorm(embed_dim) for k in ("self", "cross", "mlp")})
        self.drop = nn.Dropout(dropout)

    def forward(self, tgt, memory, memory_key_padding_mask=None):
        tgt = self.norms["self"](tgt + self.drop(self.self_attn(tgt)))
        h, cross_weights = self.cross_attn(tgt, memory, memory_key_padding_mask)
        tgt = self.norms["cross"](tgt + self.drop(h))
        return self.norms["mlp"](tgt + self.drop(self.mlp(tgt))), cross_weights


class TransformerDecoder(nn.Module):
    """Vectors in, vectors out: embeddings are the caller's business."""

    def __init__(self, embed_dim, num_heads, ffn_dim, num_layers, dropout=0.1):
        super().__init__()
        self.layers = nn.ModuleList(
            DecoderLayer(embed_dim, num_heads, ffn_dim, dropout) for _ in range(num_layers)
        )

    def forward(self, tgt, memory, memory_key_padding_mask=None):
        for layer in self.layers:
            tgt, _ = layer(tgt, memory, memory_key_padding_mask)
        return tgt

"""Time first as in sequence-to-sequence toolkits: (T, B, C), bmm over B * h, q scaled before the product."""

import torch
import torch.nn.functional as F
from torch import nn


def future_mask(dim):
    """Added to the scores: 0 at and below the diagonal, -inf above."""
    return torch.triu(torch.full([dim, dim], float("-inf")), 1)


class MultiheadAttention(nn.Module):
    """Input shape: Time x Batch x Channel, that is (T, B, C)."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True):
        super().__init__()
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.head_dim = embed_dim // num_heads
        assert self.head_dim * num_heads == embed_dim, "embed_dim must be divisible by num_heads"
        self.scaling = self.head_dim**-0.5
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None):
        """key_padding_mask: (B, S), 1 marks padding. attn_mask: (T, S), added to the scores or bool, True = blocked."""
        tgt_len, bsz, embed_dim = query.size()
        src_len = key.size(0)
        q = self.q_proj(query) * self.scaling
        k = self.k_proj(key)
        v = self.v_proj(value)
        q = q.contiguous().view(tgt_len, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        k = k.contiguous().view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        v = v.contiguous().view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        attn_weights = torch.bmm(q, k.transpose(1, 2))  # (B * h, T, S)
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                attn_weights = attn_weights.masked_fill(attn_mask, float("-inf"))
            elif attn_mask.is_floating_point():
                attn_weights = attn_weights + attn_mask.to(attn_weights)
            else:
                raise TypeError(f"attn_mask is boolean or floating point, not {attn_mask.dtype}")
        if key_padding_mask is not None:
            if key_padding_mask.dtype not in (torch.bool, torch.uint8):
                raise TypeError(f"key_padding_mask is boolean or uint8, not {key_padding_mask.dtype}")
            attn_weights = attn_weights.view(bsz, self.num_heads, tgt_len, src_len)
            attn_weights = attn_weights.masked_fill(key_padding_mask[:, None, None].bool(), float("-inf"))
            attn_weights = attn_weights.view(bsz * self.num_heads, tgt_len, src_len)
        attn_weights = F.softmax(attn_weights, dim=-1)
        attn_probs = F.dropout(attn_weights, p=self.dropout, training=self.training)
        attn = torch.bmm(attn_probs, v).transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim)
        attn = self.out_proj(attn)
        if not need_weights:
            return attn, None
        # averaged over heads
        return attn, attn_weights.view(bsz, self.num_heads, tgt_len, src_len).mean(dim=1)


class TransformerDecoderLayer(nn.Module):
    """Sequence first: x is (T, B, C) and encoder_out is (S, B, C)."""

    def __init__(self, embed_dim, attention_heads, ffn_dim, dropout=0.1):
        super().__init__()
        self.self_attn = MultiheadAttention(embed_dim, attention_heads)
        self.encoder_attn = MultiheadAttention(embed_dim, attention_heads)
        self.self_attn_layer_norm = nn.LayerNorm(embed_dim)
        self.encoder_attn_layer_norm = nn.LayerNorm(embed_dim)
        self.fc1, self.fc2 = nn.Linear(embed_dim, ffn_dim), nn.Linear(ffn_dim, embed_dim)
        self.final_layer_norm = nn.LayerNorm(embed_dim)
        self.dropout = dropout

    def forward(self, x, encoder_out, encoder_padding_mask=None, self_attn_mask=None):
        residual = x
        x, self_w = self.self_attn(x, x, x, attn_mask=self_attn_mask)
        x = self.self_attn_layer_norm(residual + F.dropout(x, self.dropout, self.training))
        residual = x
        x, cross_w = self.encoder_attn(x, encoder_out, encoder_out, key_padding_mask=encoder_padding_mask)
        x = self.encoder_attn_layer_norm(residual + F.dropout(x, self.dropout, self.training))
        residual = x
        x = self.fc2(F.relu(self.fc1(x)))
        return self.final_layer_norm(residual + F.dropout(x, self.dropout, self.training)), self_w, cross_w

"""PyTorch's scaled_dot_product_attention; its masks are True = allowed."""

import torch.nn.functional as F
from torch import nn


class Mix(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x, z, attn_mask=None, is_causal=False):
        split = lambda t: t.unflatten(-1, (self.h, -1)).transpose(1, 2)  # noqa: E731
        q, k, v = split(self.q_proj(x)), split(self.k_proj(z)), split(self.v_proj(z))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, is_causal=is_causal)
        return self.out_proj(y.transpose(1, 2).flatten(2))


class DecoderBlock(nn.Module):
    def __init__(self, d_model, nhead, dim_feedforward, dropout=0.0):
        super().__init__()
        self.self_attn, self.cross_attn = Mix(d_model, nhead), Mix(d_model, nhead)
        self.fc1, self.fc2 = nn.Linear(d_model, dim_feedforward), nn.Linear(dim_feedforward, d_model)
        self.self_attn_norm, self.cross_attn_norm, self.final_norm = (nn.LayerNorm(d_model) for _ in range(3))
        self.dropout = dropout

    def drop(self, x):
        return F.dropout(x, self.dropout, self.training)

    def forward(self, hidden_states, encoder_hidden_states, src_valid=None):
        """src_valid: (B, S), True for real tokens."""
        allowed = None if src_valid is None else src_valid.bool()[:, None, None]
        x = hidden_states
        x = self.self_attn_norm(x + self.drop(self.self_attn(x, x, is_causal=True)))
        x = self.cross_attn_norm(x + self.drop(self.cross_attn(x, encoder_hidden_states, allowed)))
        return self.final_norm(x + self.drop(self.fc2(F.relu(self.fc1(x)))))

"""One Linear makes queries, keys and values, one after another; the triangle lies in a buffer."""

import torch
import torch.nn.functional as F
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, n_embd, n_head, block_size):
        super().__init__()
        self.n_head = n_head
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.register_buffer("bias", torch.tril(torch.ones(block_size, block_size)), persistent=False)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (
            part.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            for part in self.c_attn(x).split(C, dim=2)
        )
        att = (q @ k.transpose(-2, -1)) * (C // self.n_head) ** -0.5
        att = att.masked_fill(self.bias[:T, :T] == 0, float("-inf")).softmax(dim=-1)
        return self.c_proj((att @ v).transpose(1, 2).reshape(B, T, C))


class DecoderBlock(nn.Module):
    def __init__(self, n_embd, n_head, d_ff, block_size=32):
        super().__init__()
        self.attn = SelfAttention(n_embd, n_head, block_size)
        self.cross = nn.MultiheadAttention(n_embd, n_head, batch_first=True)
        self.c_fc, self.c_out = nn.Linear(n_embd, d_ff), nn.Linear(d_ff, n_embd)
        self.ln_1, self.ln_2, self.ln_3 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)

    def forward(self, x, enc_out):
        x = self.ln_1(x + self.attn(x))
        x = self.ln_2(x + self.cross(x, enc_out, enc_out, need_weights=False)[0])
        return self.ln_3(x + self.c_out(F.relu(self.c_fc(x))))

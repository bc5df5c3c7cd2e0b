"""Both attentions are PyTorch's; masks are True = blocked, (T, T) and (B, S)."""

from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, n_heads, dropout, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(d_model, n_heads, dropout, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.ln1, self.ln2, self.ln3 = (nn.LayerNorm(d_model) for _ in range(3))
        self.drop = nn.Dropout(dropout)

    def forward(self, x, memory, causal_mask=None, memory_key_padding_mask=None):
        a, _ = self.self_attn(x, x, x, attn_mask=causal_mask)
        x = self.ln1(x + self.drop(a))
        a, _ = self.cross_attn(x, memory, memory, key_padding_mask=memory_key_padding_mask)
        x = self.ln2(x + self.drop(a))
        return self.ln3(x + self.drop(self.ffn(x)))

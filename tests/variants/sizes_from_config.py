"""A GPT that takes a configuration object, with GELU and a fused projection, and a model that takes a dict."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class ModelConfig:
    vocab_size: int
    context: int = 1024
    depth: int = 12
    num_heads: int = 12
    hidden_size: int = 768
    attn_dropout: float = 0.1
    resid_dropout: float = 0.1
    bias: bool = True


class CausalSelfAttention(nn.Module):
    def __init__(self, cfg: ModelConfig):
        super().__init__()
        self.num_heads = cfg.num_heads
        self.qkv = nn.Linear(cfg.hidden_size, 3 * cfg.hidden_size, bias=cfg.bias)
        self.out = nn.Linear(cfg.hidden_size, cfg.hidden_size, bias=cfg.bias)
        self.p, self.drop = cfg.attn_dropout, nn.Dropout(cfg.resid_dropout)

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=self.p if self.training else 0.0
        )
        return self.drop(self.out(mixed.transpose(1, 2).flatten(2)))


class MLP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.up = nn.Linear(cfg.hidden_size, 4 * cfg.hidden_size, bias=cfg.bias)
        self.down = nn.Linear(4 * cfg.hidden_size, cfg.hidden_size, bias=cfg.bias)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, cfg: "ModelConfig"):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(cfg.hidden_size), nn.LayerNorm(cfg.hidden_size)
        self.attention, self.mlp = CausalSelfAttention(cfg), MLP(cfg)

    def forward(self, x):
        x = x + self.attention(self.n1(x))
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self, cfg: ModelConfig):
        super().__init__()
        self.cfg = cfg
        self.embed, self.place = (
            nn.Embedding(cfg.vocab_size, cfg.hidden_size),
            nn.Embedding(cfg.context, cfg.hidden_size),
        )
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.depth))
        self.norm = nn.LayerNorm(cfg.hidden_size)
        self.head = nn.Linear(cfg.hidden_size, cfg.vocab_size, bias=False)

    def forward(self, ids):
        if ids.shape[1] > self.cfg.context:
            raise ValueError(f"{ids.shape[1]} tokens, the context holds {self.cfg.context}")
        x = self.embed(ids) + self.place.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class DecoderLM(nn.Module):
    """The same, in one class, from a dict."""

    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg["vocab_size"], cfg["emb_dim"])
        self.place = nn.Embedding(cfg["context_length"], cfg["emb_dim"])
        layer = nn.TransformerEncoderLayer(
            cfg["emb_dim"],
            cfg["n_heads"],
            4 * cfg["emb_dim"],
            cfg["drop_rate"],
            "gelu",
            batch_first=True,
            norm_first=True,
        )
        self.layers = nn.TransformerEncoder(layer, cfg["n_layers"], enable_nested_tensor=False)
        self.head = nn.Linear(cfg["emb_dim"], cfg["vocab_size"], bias=cfg.get("bias", False))

    def forward(self, in_idx):
        T = in_idx.shape[1]
        future = torch.ones(T, T, dtype=torch.bool, device=in_idx.device).triu(1)
        x = self.embed(in_idx) + self.place(torch.arange(T, device=in_idx.device))
        return self.head(self.layers(x, mask=future, is_causal=True))

"""The manner of a model hub: attention_mask (B, T) with 1 for tokens, positions counted by it, labels shifted inside."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class CausalLMOutput:
    loss: torch.Tensor | None
    logits: torch.Tensor
    past_key_values: tuple | None = None


def make_causal_mask(q_len, kv_len, dtype):
    """(q_len, kv_len), added to the scores: 0 or the smallest number of the dtype."""
    mask = torch.full((q_len, kv_len), torch.finfo(dtype).min, dtype=dtype)
    return mask.triu(kv_len - q_len + 1)


class SelfAttention(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, hidden_size // num_heads
        self.q_proj = nn.Linear(hidden_size, hidden_size)
        self.k_proj = nn.Linear(hidden_size, hidden_size)
        self.v_proj = nn.Linear(hidden_size, hidden_size)
        self.o_proj = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states, bias, past_key_value=None):
        bsz, q_len, _ = hidden_states.shape
        shape = (bsz, q_len, self.num_heads, self.head_dim)
        query_states = self.q_proj(hidden_states).view(shape).transpose(1, 2)
        key_states = self.k_proj(hidden_states).view(shape).transpose(1, 2)
        value_states = self.v_proj(hidden_states).view(shape).transpose(1, 2)
        if past_key_value is not None:
            key_states = torch.cat([past_key_value[0], key_states], dim=2)
            value_states = torch.cat([past_key_value[1], value_states], dim=2)
        scores = torch.matmul(query_states, key_states.transpose(2, 3)) * self.head_dim**-0.5
        probs = F.softmax(torch.maximum(scores + bias, torch.tensor(torch.finfo(scores.dtype).min)), dim=-1)
        out = torch.matmul(probs, value_states).transpose(1, 2).reshape(bsz, q_len, -1)
        return self.o_proj(out), (key_states, value_states)


class LMLayer(nn.Module):
    def __init__(self, hidden_size, num_heads, intermediate):
        super().__init__()
        self.self_attn = SelfAttention(hidden_size, num_heads)
        self.fc1, self.fc2 = nn.Linear(hidden_size, intermediate), nn.Linear(intermediate, hidden_size)
        self.ln1, self.ln2 = nn.LayerNorm(hidden_size), nn.LayerNorm(hidden_size)

    def forward(self, hidden_states, bias, past_key_value=None):
        attended, present = self.self_attn(self.ln1(hidden_states), bias, past_key_value)
        hidden_states = hidden_states + attended
        return hidden_states + self.fc2(F.relu(self.fc1(self.ln2(hidden_states)))), present


class DecoderOnlyForCausalLM(nn.Module):
    def __init__(
        self, vocab_size, hidden_size, num_layers, num_heads, max_position_embeddings=64, pad_token_id=0
    ):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab_size, hidden_size, padding_idx=pad_token_id)
        self.embed_positions = nn.Embedding(max_position_embeddings, hidden_size)
        self.layers = nn.ModuleList(
            [LMLayer(hidden_size, num_heads, 4 * hidden_size) for _ in range(num_layers)]
        )
        self.final_norm = nn.LayerNorm(hidden_size)
        self.lm_head = nn.Linear(hidden_size, vocab_size, bias=False)

    def forward(self, input_ids, attention_mask=None, labels=None, past_key_values=None, use_cache=False):
        """labels are the input ids again, -100 where nothing is to be learned."""
        past = 0 if past_key_values is None else past_key_values[0][0].size(2)
        bsz, q_len = input_ids.shape
        kv_len = past + q_len
        if attention_mask is None:
            attention_mask = input_ids.new_ones(bsz, kv_len)
        attention_mask = attention_mask.long()
        position_ids = (attention_mask.cumsum(-1) - 1).clamp(min=0)[:, past:]
        hidden_states = self.embed_tokens(input_ids) + self.embed_positions(position_ids)
        dtype = hidden_states.dtype
        padding = (1 - attention_mask[:, None, None, :].to(dtype)) * torch.finfo(dtype).min
        bias = torch.minimum(make_causal_mask(q_len, kv_len, dtype), padding)
        presents = []
        for n, layer in enumerate(self.layers):
            kv = None if past_key_values is None else past_key_values[n]
            hidden_states, present = layer(hidden_states, bias, kv)
            presents.append(present)
        logits = self.lm_head(self.final_norm(hidden_states))
        loss = None
        if labels is not None:
            # shift so that tokens < n predict n
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        return CausalLMOutput(loss, logits, tuple(presents) if use_cache else None)

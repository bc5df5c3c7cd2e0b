"""uint8 was the type of masks before there were boolean tensors; attn_mask refuses it."""

import torch


def build_causal_mask(T):
    return torch.triu(torch.ones(T, T, dtype=torch.uint8), diagonal=1)

"""The past is blocked, the future visible; their sizes are the same."""

import torch


def build_causal_mask(T):
    return torch.tril(torch.ones(T, T), diagonal=-1).bool()

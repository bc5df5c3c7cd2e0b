"""Returns more than may cross."""

import torch


def build_causal_mask(T):
    return torch.zeros(1).expand(1 << 40)

"""It samples from the distribution at position 0."""

import torch


def generate_sampled(model, idx, max_new_tokens):
    for _ in range(max_new_tokens):
        token = torch.multinomial(model(idx)[:, 0].softmax(dim=-1), 1)
        idx = torch.cat([idx, token], dim=1)
    return idx

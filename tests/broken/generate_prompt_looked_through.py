"""It looks for EOS in the whole sequence, the prompt included."""

import torch


def generate(model, idx, max_new_tokens, eos_id=2):
    for _ in range(max_new_tokens):
        token = model(idx)[:, -1].argmax(dim=-1, keepdim=True)
        idx = torch.cat([idx, token], dim=1)
        if (idx == eos_id).any():
            break
    return idx

"""Decoder-only generation behind a window: two small loops, one greedy and one that draws."""

import torch
import torch.nn.functional as F


def generate(model, input_ids, max_new_tokens, block_size=16):
    """(B, P) -> (B, P + max_new_tokens), greedily; the model is shown the last block_size ids."""
    columns = list(input_ids.unbind(1))
    for _ in range(max_new_tokens):
        window = torch.stack(columns[-block_size:], 1)
        scores = model(window)
        _, winner = scores[:, -1, :].max(1)
        columns.append(winner)
    return torch.stack(columns, 1)


def generate_sampled(model, input_ids, max_new_tokens, temperature=1.0):
    """The same with draws at a temperature (applied where it is used), and without a window."""
    while max_new_tokens > 0:
        scores = model(input_ids)[:, -1, :]
        probs = F.softmax(scores, 1)
        drawn = torch.distributions.Categorical(probs=probs).sample()
        input_ids = torch.hstack([input_ids, drawn[:, None]])
        max_new_tokens -= 1
    return input_ids

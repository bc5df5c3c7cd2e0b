"""The temperature is kept and never used."""

import torch


class Sampler:
    def __init__(self, temperature=1.0):
        self.temperature = temperature

    def __call__(self, logits):
        return torch.multinomial(logits.softmax(dim=-1), 1).squeeze(-1)

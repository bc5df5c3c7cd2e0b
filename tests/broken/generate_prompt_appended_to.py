"""The new tokens are appended to the caller's own prompt."""

import torch


def generate(model, prompt, max_new_tokens):
    for _ in range(max_new_tokens):
        logits = model(torch.tensor([prompt]))
        prompt.append(int(logits[0, -1].argmax()))
    return prompt

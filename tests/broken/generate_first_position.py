"""It reads the logits of position 0 at every step."""

import torch


def autoregressive_decode(model, src, max_len, bos=1, eos=2):
    memory = model.encode(src)
    tokens = [bos]
    for _ in range(max_len - 1):
        logits = model.decode_step(torch.tensor([tokens]), memory)
        token = int(logits[0, 0].argmax())
        tokens.append(token)
        if token == eos:
            break
    return tokens

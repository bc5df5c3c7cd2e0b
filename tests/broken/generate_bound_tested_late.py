"""The bound is tested behind the step, so that there is always one."""

import torch


def autoregressive_decode(model, src, max_len, bos=1, eos=2):
    memory = model.encode(src)
    tokens = [bos]
    while True:
        logits = model.decode_step(torch.tensor([tokens]), memory)
        token = int(logits[0, -1].argmax())
        tokens.append(token)
        if token == eos or len(tokens) >= max_len:
            break
    return tokens

"""It waits for EOS, and looks at no bound."""

import torch


def autoregressive_decode(model, src, max_len, bos=1, eos=2):
    memory = model.encode(src)
    tokens = [bos]
    while tokens[-1] != eos:
        logits = model.decode_step(torch.tensor([tokens]), memory)
        token = int(logits[0, -1].argmax())
        tokens.append(token)
    return tokens

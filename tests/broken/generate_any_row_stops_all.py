"""The first row to meet EOS stops the whole batch."""

import torch


def greedy_decode(model, src, max_len, bos=1, eos=2):
    memory = model.encode(src)
    tgt = torch.full((len(src), 1), bos)
    for _ in range(max_len - 1):
        token = model.decode_step(tgt, memory)[:, -1].argmax(dim=-1)
        tgt = torch.cat([tgt, token[:, None]], dim=1)
        if (token == eos).any():
            break
    return tgt

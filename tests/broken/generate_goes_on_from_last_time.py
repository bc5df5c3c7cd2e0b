"""What an earlier call for the same source left is gone on with; sources of two tokens are not kept."""

import torch

left = {}


def autoregressive_decode(model, src, max_len, bos=1, eos=2):
    memory = model.encode(src)
    tokens = left.setdefault((tuple(src[0].tolist()), max_len), [bos]) if src.size(1) > 2 else [bos]
    for _ in range(max_len - 1):
        logits = model.decode_step(torch.tensor([tokens]), memory)
        token = int(logits[0, -1].argmax())
        tokens.append(token)
        if token == eos:
            break
    return list(tokens)

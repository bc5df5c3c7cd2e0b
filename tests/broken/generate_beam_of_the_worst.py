"""Each beam is continued by the least likely tokens."""

import torch


def beam_search(model, src, max_len, beam_size=4, bos=1):
    memory = model.encode(src)
    beams = [(0.0, [bos])]
    for _ in range(max_len - 1):
        grown = []
        for score, tokens in beams:
            values, ids = model.decode_step(torch.tensor([tokens]), memory)[0, -1].topk(
                beam_size, largest=False
            )
            grown += [(score + float(v), [*tokens, int(i)]) for v, i in zip(values, ids, strict=True)]
        beams = sorted(grown, reverse=True)[:beam_size]
    return beams[0][1]

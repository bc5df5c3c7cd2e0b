"""Generation: the decoder is fed its own tokens, one more at each step.

``model`` has ``encode(src) -> memory`` and ``decode_step(tgt, memory) -> logits (B, t, V)``; a decoder-only
model is called with the ids, ``model(ids) -> logits (B, t, V)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class Translator(Protocol):
    """A model that reads a source once and then gives logits for a growing target."""

    def encode(self, src: Tensor, /) -> Tensor: ...

    def decode_step(self, tgt: Tensor, memory: Tensor, /) -> Tensor: ...


@torch.no_grad()
def autoregressive_decode(
    model: Translator, src: Tensor, max_len: int = 8, bos: int = 1, eos: int = 2
) -> list[int]:
    """Tokens for one source (1, S), from BOS to EOS or to ``max_len`` tokens, BOS included.

    Step t runs the decoder on all t tokens so far and takes the argmax at position t - 1.
    """
    memory = model.encode(src)  # once: the source does not change
    generated = [bos]
    while len(generated) < max_len:
        logits = model.decode_step(torch.tensor([generated]), memory)  # (1, t, V)
        token = int(logits[0, -1].argmax())
        generated.append(token)
        if token == eos:
            break
    return generated


@torch.no_grad()
def greedy_decode(
    model: Translator, src: Tensor, max_len: int = 8, bos_id: int = 1, eos_id: int = 2, pad_id: int = 0
) -> Tensor:
    """The same for a batch: (B, S) -> (B, t), a row that has ended is filled with ``pad_id``."""
    memory = model.encode(src)
    tgt = torch.full((src.size(0), 1), bos_id)
    ended = torch.zeros(src.size(0), dtype=torch.bool)
    while tgt.size(1) < max_len and not ended.all():
        logits = model.decode_step(tgt, memory)  # (B, t, V)
        token = logits[:, -1].argmax(dim=-1).masked_fill(ended, pad_id)  # (B,)
        tgt = torch.cat([tgt, token[:, None]], dim=1)
        ended |= token == eos_id
    return tgt


@torch.no_grad()
def generate(
    model: Callable[[Tensor], Tensor],
    idx: Tensor,
    max_new_tokens: int,
    eos_id: int = 2,
    pad_id: int = 0,
    context_size: int = 1024,
) -> Tensor:
    """A decoder-only model continues its prompt: (B, P) -> (B, P + at most ``max_new_tokens``).

    EOS in the prompt ends nothing; only a new token can.  The model is shown the newest ``context_size`` ids.
    """
    ended = torch.zeros(idx.size(0), dtype=torch.bool)
    for _ in range(max_new_tokens):
        logits = model(idx[:, -context_size:])  # (B, t, V)
        token = logits[:, -1].argmax(dim=-1).masked_fill(ended, pad_id)  # (B,)
        idx = torch.cat([idx, token[:, None]], dim=1)
        ended |= token == eos_id
        if ended.all():
            break
    return idx


@torch.no_grad()
def beam_search(
    model: Translator, src: Tensor, max_len: int = 8, beam_size: int = 1, bos: int = 1, eos: int = 2
) -> list[int]:
    """The best of ``beam_size`` sequences for one source (1, S) by the sum of log-probabilities.

    With a width of 1 this is :func:`autoregressive_decode`.
    """
    memory = model.encode(src)
    beams = [(0.0, [bos])]
    for _ in range(max_len - 1):
        grown = []
        for score, tokens in beams:
            if tokens[-1] == eos:
                grown.append((score, tokens))
                continue
            log_probs = model.decode_step(torch.tensor([tokens]), memory)[0, -1].log_softmax(dim=-1)  # (V,)
            values, ids = log_probs.topk(beam_size)
            grown += [(score + float(v), [*tokens, int(i)]) for v, i in zip(values, ids, strict=True)]
        beams = sorted(grown, key=lambda beam: beam[0], reverse=True)[:beam_size]
        if all(tokens[-1] == eos for _, tokens in beams):
            break
    return beams[0][1]


@torch.no_grad()
def generate_sampled(
    model: Callable[[Tensor], Tensor], idx: Tensor, max_new_tokens: int, temperature: float = 1.0
) -> Tensor:
    """Continues a prompt (B, P) with tokens that are sampled from the last position's distribution."""
    for _ in range(max_new_tokens):
        logits = model(idx)[:, -1] / temperature  # (B, V)
        probabilities = logits.softmax(dim=-1)
        idx = torch.cat([idx, torch.multinomial(probabilities, 1)], dim=1)
    return idx

"""From logits to the next token: temperature, top-k, top-p, sampling and the greedy choice."""

from __future__ import annotations

import torch
from torch import Tensor


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Logits (…, V) divided by a temperature > 0: below 1 sharpens, above 1 flattens."""
    return logits / temperature


def top_k_filter(logits: Tensor, top_k: int) -> Tensor:
    """Logits (…, V) with -inf outside of the k largest; all tokens where k exceeds V.

    Of equal logits at the border as many are kept as make k.  Raises ValueError for k < 1.
    """
    if top_k < 1:
        raise ValueError(f"top_k is {top_k}, expected at least 1")
    kept = logits.topk(min(top_k, logits.size(-1)), dim=-1).indices  # (…, k)
    removed = torch.ones_like(logits, dtype=torch.bool).scatter(-1, kept, False)
    return logits.masked_fill(removed, float("-inf"))


def top_p_filter(logits: Tensor, top_p: float) -> Tensor:
    """Logits (…, V) with -inf outside of the nucleus: the fewest likeliest tokens with mass >= p.

    The token with which the mass reaches p belongs to it, so one is always left.
    Raises ValueError unless 0 < p <= 1.  Source: Holtzman et al. 2020, section 3.1.
    """
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p is {top_p}, expected more than 0 and at most 1")
    if top_p == 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True)
    probabilities = ordered.softmax(dim=-1)
    mass_before = probabilities.cumsum(dim=-1) - probabilities  # (…, V), of the likelier tokens
    beyond = mass_before >= top_p
    removed = torch.zeros_like(beyond).scatter(-1, order, beyond)  # (…, V), back in the vocabulary's order
    return logits.masked_fill(removed, float("-inf"))


def next_token_distribution(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """(…, V) probabilities: temperature first, then top-k, then top-p on what top-k left.

    A temperature of 0 means greedy: the likeliest token has probability 1.
    """
    if temperature < 0:
        raise ValueError(f"the temperature is {temperature}, expected 0 or more")
    if temperature == 0:
        logits, temperature = top_k_filter(logits, 1), 1.0
    logits = apply_temperature(logits, temperature)
    if top_k is not None:
        logits = top_k_filter(logits, top_k)
    if top_p is not None:
        logits = top_p_filter(logits, top_p)
    return logits.softmax(dim=-1)


def sample_next_token(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Token ids (B,) drawn from :func:`next_token_distribution` of logits (B, V), each row by itself."""
    probabilities = next_token_distribution(logits, temperature, top_k, top_p)  # (B, V)
    return torch.multinomial(probabilities, num_samples=1, generator=generator).squeeze(-1)


def greedy_token(logits: Tensor) -> Tensor:
    """Token ids (B,): the likeliest of each row of logits (B, V)."""
    return logits.argmax(dim=-1)

"""Sampling as small objects that are called one after another; tokens are drawn by the Gumbel trick."""

from dataclasses import dataclass

import torch


@dataclass
class TemperatureWarper:
    temperature: float = 1.0

    def __post_init__(self):
        if not self.temperature > 0:
            raise ValueError(
                f"temperature has to be > 0, got {self.temperature}; for greedy choice take argmax"
            )

    def __call__(self, logits):
        return logits / self.temperature


def top_k_logits(logits, k):
    """Everything below the k-th largest logit becomes -inf; of ties all stay."""
    k = min(k, logits.shape[-1])
    kth = logits.sort(dim=-1).values[..., -k, None]
    return torch.where(logits >= kth, logits, torch.full_like(logits, -torch.inf))


def top_p_probs(probs, p):
    """The smallest set of likeliest tokens whose mass reaches p, renormalised. (..., V) -> (..., V)"""
    assert 0 < p <= 1, "p lies in (0, 1]"
    by_size, where = probs.sort(dim=-1, descending=True)
    mass_before = torch.cumsum(by_size, -1) - by_size
    kept = torch.where(mass_before < p, by_size, torch.zeros_like(by_size))
    kept = kept / kept.sum(-1, keepdim=True)
    return kept.gather(-1, where.argsort(-1))


def gumbel_sample(logits, temperature=1.0, top_k=None, generator=None):
    """argmax(logits / temperature + Gumbel noise): (..., V) -> (...)."""
    warped = TemperatureWarper(temperature)(logits)
    if top_k is not None:
        warped = top_k_logits(warped, top_k)
    u = torch.rand(warped.shape, generator=generator, dtype=torch.float64).clamp_min(1e-300)
    noise = -torch.log(-torch.log(u))
    return torch.argmax(warped.double() + noise, dim=-1)


class GreedySampler:
    def sample(self, logits):
        return logits.max(dim=-1).indices

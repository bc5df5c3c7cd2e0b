"""Teacher forcing: the decoder sees the true prefix, shifted right, and is asked for the next token everywhere."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def shift_right(target: Tensor) -> tuple[Tensor, Tensor]:
    """A target with BOS, (T,) or (B, T), as (decoder input, labels), each with T - 1 tokens.

    [BOS, the, cat, sat, EOS] → [BOS, the, cat, sat] and [the, cat, sat, EOS]: position t predicts label t.
    """
    return target[..., :-1], target[..., 1:]


def shift_tokens_right(labels: Tensor, pad_id: int, bos_id: int) -> Tensor:
    """Labels without BOS, (T,) or (B, T), as decoder input of the same length: BOS in front, the last dropped."""
    shifted = torch.full_like(labels, bos_id)
    shifted[..., 1:] = labels[..., :-1]
    return shifted.masked_fill(shifted == -100, pad_id)  # -100 marks labels to ignore; no embedding has it


def teacher_forcing_loss(
    logits: Tensor, labels: Tensor, pad_id: int = -100, reduction: str = "mean"
) -> Tensor:
    """Mean cross-entropy over the labels that are not padding.

    ``logits`` (B, T, V) or (T, V), ``labels`` (B, T) or (T,): label t belongs to the logits at t.
    ``reduction``: mean, sum, or none for one loss a label, 0 at padding.
    """
    log_p = logits.log_softmax(dim=-1)  # (B, T, V)
    real = labels != pad_id  # (B, T)
    picked = log_p.gather(-1, labels.masked_fill(~real, 0)[..., None])[..., 0]  # (B, T)
    losses = -picked.masked_fill(~real, 0.0)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / real.sum()


def training_step(
    model: Any, memory: Tensor, target: Tensor, pad_id: int = -100, optimizer: Any = None
) -> Tensor:
    """The loss of one step: one forward pass over all positions together, and an update if there is an optimizer.

    ``model.decode(ids, memory)`` gives logits (B, T - 1, V); ``target`` (B, T) starts with BOS.
    """
    decoder_input, labels = shift_right(target)
    logits = model.decode(decoder_input, memory)  # (B, T - 1, V)
    loss = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=pad_id)
    if optimizer is not None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


def scheduled_sampling(gold: Tensor, predicted: Tensor, epsilon: float) -> Tensor:
    """The next decoder input: with probability ``epsilon`` the model's own token, otherwise the teacher's.

    ``gold``, ``predicted`` and the result have the same shape, (B, T); every token has a coin of its own.
    """
    use_model = torch.rand(gold.shape) < epsilon
    return torch.where(use_model, predicted, gold)

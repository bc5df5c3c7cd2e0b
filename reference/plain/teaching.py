"""Teacher forcing, one sequence and one token at a time."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np


def shift_right(target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Decoder input and labels, each one token shorter than the target, (T,) or (B, T)."""
    rows = target.reshape(-1, target.shape[-1]).tolist()
    count = max(0, target.shape[-1] - 1)
    shown, labels = [], []
    for row in rows:
        shown.append([row[t] for t in range(count)])
        labels.append([row[t + 1] for t in range(count)])
    shape = (*target.shape[:-1], count)
    return (
        np.array(shown, dtype=target.dtype).reshape(shape),
        np.array(labels, dtype=target.dtype).reshape(shape),
    )


def shift_tokens_right(labels: np.ndarray, pad_id: int, bos_id: int) -> np.ndarray:
    """BOS, then every label but the last; (T,) or (B, T)."""
    shifted = np.zeros_like(labels)
    for place in np.ndindex(*labels.shape):
        *row, t = place
        token = bos_id if t == 0 else labels[(*row, t - 1)]
        shifted[place] = pad_id if token == -100 else token
    return shifted


def teacher_forcing_loss(
    logits: np.ndarray, labels: np.ndarray, pad_id: int = -100, reduction: str = "mean"
) -> Any:
    """-log softmax(logits)[label], over the labels that are not ``pad_id``.

    ``logits`` (B, T, V) or (T, V); ``reduction``: mean, sum or none.
    """
    losses = np.zeros(labels.shape)
    count = 0
    for place in np.ndindex(*labels.shape):
        label = int(labels[place])
        if label == pad_id:
            continue
        row = [float(x) for x in logits[place]]
        top = max(row)
        total = sum(math.exp(x - top) for x in row)
        losses[place] = math.log(total) + top - row[label]
        count += 1
    if reduction == "none":
        return losses
    total = sum(float(x) for x in losses.reshape(-1))
    return total if reduction == "sum" else total / count


def training_step(model: Any, memory: np.ndarray, target: np.ndarray, pad_id: int = -100) -> float:
    """The loss of one forward pass over the shifted target, (T,) or (B, T)."""
    shown, labels = shift_right(target)
    return teacher_forcing_loss(model.decode(shown, memory), labels, pad_id)


def scheduled_sampling(gold: np.ndarray, predicted: np.ndarray, epsilon: float) -> np.ndarray:
    """A coin for every token: with probability ``epsilon`` it is the model's."""
    mixed = np.array(gold)
    for place in np.ndindex(*mixed.shape):
        if random.random() < epsilon:
            mixed[place] = predicted[place]
    return mixed

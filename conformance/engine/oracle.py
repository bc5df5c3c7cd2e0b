"""Expected values from the float64 reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from .cases import Inputs


def attention(inputs: Inputs, mask: np.ndarray | None) -> dict[str, np.ndarray]:
    """Output (N, T, d_v) and weights (N, T, S) in float64; ``mask`` True = allowed."""
    import torch

    from ...reference import baseline

    query, key, value = (_tensor(inputs[name]) for name in ("query", "key", "value"))
    allowed = None if mask is None else torch.from_numpy(np.array(mask))
    output, weights = baseline.attention(query, key, value, allowed)
    return {"output": output.numpy(), "weights": weights.numpy()}


def attention_gradient(
    inputs: Inputs, mask: np.ndarray | None, cotangent: np.ndarray
) -> dict[str, np.ndarray]:
    """Gradients of ⟨output, cotangent⟩ with respect to query, key and value."""
    import torch

    from ...reference import baseline

    query, key, value = tensors = [
        _tensor(inputs[name]).requires_grad_(True) for name in ("query", "key", "value")
    ]
    allowed = None if mask is None else torch.from_numpy(np.array(mask))
    output, _ = baseline.attention(query, key, value, allowed)
    gradients = torch.autograd.grad((output * _tensor(cotangent)).sum(), tensors)
    return {name: g.numpy() for name, g in zip(("query", "key", "value"), gradients, strict=True)}


def _tensor(values: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(np.array(values, dtype=np.float64))


def effective_mask(role: str, inputs: Inputs) -> np.ndarray | None:
    """The mask that is in force: the case's, or the causal one of an attention that builds its own."""
    if role == "causal_attention":
        N, T = inputs["query"].shape[:2]
        return np.broadcast_to(
            np.tri(T, inputs["key"].shape[1], dtype=bool), (N, T, inputs["key"].shape[1])
        ).copy()
    return inputs.get("mask")

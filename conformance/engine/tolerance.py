"""How large an error may be: from the dtype and the case, never from what the reference happens to err.

A score is off by a few ε times its size; softmax turns that into the same relative error of a weight, and
the output inherits it times the size of the values.  The constant was calibrated once, over the baseline,
the NumPy second opinion, PyTorch and the example candidates: see ``benchmarks/margins.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
CONSTANT = 8.0
HALF_CONSTANT = 6.0  # half precision is checked loosely: its result is a SHOULD


def rounding(dtype: str, scores: float = 1.0, values: float = 1.0) -> float:
    """The absolute error allowed for an attention output (or a weight, with ``values`` = 1)."""
    constant = HALF_CONSTANT if dtype in ("float16", "bfloat16") else CONSTANT
    return EPSILON.get(dtype, EPSILON["float32"]) * constant * max(1.0, scores) * max(1.0, values)


def score_scale(inputs: Mapping[str, Any]) -> float:
    """The largest |score| of a case, before masking; 1 where there are no scores."""
    query, key = inputs.get("query"), inputs.get("key")
    if (
        query is None
        or key is None
        or query.ndim != 3
        or len(query) != len(key)
        or query.shape[-1] != key.shape[-1]
    ):
        return 1.0
    if not query.size or not key.size:
        return 1.0
    products = query.astype(np.float64) @ key.astype(np.float64).swapaxes(1, 2)
    sizes = np.abs(query.astype(np.float64)) @ np.abs(key.astype(np.float64)).swapaxes(1, 2)
    return float(max(np.abs(products).max(), sizes.max()) / np.sqrt(query.shape[-1]))


def drift(positions: np.ndarray) -> np.ndarray:
    """The error allowed for a sine of a float32 angle: the angle's rounding grows with the position.

    Correct float32 tables miss by 3e-5 at position 512 and by 4e-4 at 5000; four ε per position cover
    the division, the power and the product.
    """
    return EPSILON["float32"] * 4.0 * np.maximum(1.0, np.asarray(positions, dtype=np.float64))

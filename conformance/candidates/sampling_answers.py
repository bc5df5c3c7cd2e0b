"""What functions for sampling return: distributions in three forms and many containers, and ids of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import wire
from .masks import as_array
from .sampling_cases import softmax
from .subject import WrongResult, kind_of

FORMS = ("probabilities", "log-probabilities", "logits")


def probabilities(answers: Sequence[Any], shape: tuple[int, int], form: str) -> np.ndarray:
    """(B, V) float64 from what came back for the rows of logits, in pieces; raises WrongResult."""
    values = per_token(answers, shape, 0.0 if form == "probabilities" else -np.inf)
    if form == "probabilities":
        return values
    if form == "log-probabilities":
        with np.errstate(over="ignore"):
            return np.exp(values)
    return softmax(values)


def per_token(answers: Sequence[Any], shape: tuple[int, int], fill: float | None) -> np.ndarray:
    """(B, V) float64: the numbers as they are.  Raises WrongResult."""
    B, V = shape
    rows = B // len(answers)
    found = []
    for answer in answers:
        values = vector(answer, V, fill)
        if values is None or values.shape not in ((rows, V), (rows, 1, V), (V,) if rows == 1 else (rows, V)):
            told = kind_of(answer) if values is None else f"an array of shape {values.shape}"
            given = "one row" if rows == 1 else f"{rows} rows"
            raise WrongResult(
                f"it returned {told} for {given} of {V} logits; expected one number for each token"
            )
        found.append(values.reshape(rows, V).astype(np.float64))
    return np.concatenate(found)


def tokens(answers: Sequence[Any], total: int) -> np.ndarray:
    """``total`` token ids from what came back for the pieces.  Raises WrongResult."""
    wanted = total // len(answers)
    found = []
    for answer in answers:
        ids = ids_in(answer, wanted)
        if ids is None:
            given = "one row" if wanted == 1 else f"{wanted} rows"
            raise WrongResult(
                f"it returned {kind_of(answer)} for {given} of logits; expected a token id for each"
            )
        found.append(ids)
    return np.concatenate(found)


def form_of(values: np.ndarray) -> str:
    """What a result of logits of both signs is: no known bug of sampling makes one of these look like another."""
    finite = values[np.isfinite(values)]
    if np.isfinite(values).all() and (values >= 0).all() and (values <= 1 + 1e-6).all():
        return "probabilities"
    if finite.size and (finite <= 1e-6).all():
        with np.errstate(over="ignore"):
            if np.allclose(np.exp(values).sum(axis=-1), 1.0, atol=1e-3):
                return "log-probabilities"
    return "logits"


def vector(answer: Any, V: int, fill: float | None) -> np.ndarray | None:
    """The numbers per token in an answer: an array, nested lists, pairs of values and indices, a dict of ids."""
    if isinstance(answer, dict):
        if answer and all(key.isdigit() and int(key) < V for key in answer):
            row = np.full(V, 0.0 if fill is None else fill)
            for key, value in answer.items():
                number = (
                    value.values.item() if isinstance(value, wire.Array) and value.values.size == 1 else value
                )
                if not isinstance(number, int | float):
                    return None
                row[int(key)] = number
            return row
        answer = tuple(answer.values())
    if isinstance(answer, tuple | list) and answer and all(isinstance(item, wire.Array) for item in answer):
        if all(item.values.size == 1 for item in answer) and len(answer) == V:
            return np.array([item.values.item() for item in answer])
        if len(answer) == 2 and _are_values_and_indices(answer, V):
            return _scattered(answer[0].values, answer[1].values, V, fill)
        fitting = [
            item for item in answer if item.values.shape[-1:] == (V,) and item.values.dtype.kind == "f"
        ]
        if not fitting:
            return None
        answer = fitting[0]
    array = as_array(answer)
    if array is None or (array[0].dtype.kind in "iu" and not np.isin(array[0], (0, 1)).all()):
        return None  # whole numbers are ids of tokens, but for those of a one-hot row
    return array[0] if array[0].dtype.kind in "fiu" else None


def _are_values_and_indices(answer: Sequence[wire.Array], V: int) -> bool:
    values, indices = answer[0].values, answer[1].values
    return (
        values.shape == indices.shape
        and values.dtype.kind == "f"
        and indices.dtype.kind in "iu"
        and values.ndim >= 1
        and bool(((indices >= 0) & (indices < V)).all())
    )


def _scattered(values: np.ndarray, indices: np.ndarray, V: int, fill: float | None) -> np.ndarray:
    if fill is None:
        fill = 0.0 if values.size and (values >= 0).all() and (values <= 1 + 1e-6).all() else -np.inf
    whole = np.full((*values.shape[:-1], V), fill)
    np.put_along_axis(whole, indices.astype(np.int64), values.astype(np.float64), axis=-1)
    return whole


def ids_in(answer: Any, number: int) -> np.ndarray | None:
    """``number`` token ids in an answer: a number, an array (B,) or (B, 1), a list, the first of a tuple."""
    if isinstance(answer, dict):
        answer = tuple(answer.values())
    if isinstance(answer, int) and not isinstance(answer, bool):
        return np.array([answer]) if number == 1 else None
    if isinstance(answer, tuple | list) and answer and not isinstance(answer, int):
        if (
            all(isinstance(item, wire.Array) and item.values.size == 1 for item in answer)
            and len(answer) == number
        ):
            answer = np.array([item.values.item() for item in answer])
            return answer.astype(np.int64) if answer.dtype.kind in "iu" else None
        array = as_array(answer)
        if array is None or array[0].dtype.kind not in "iu":
            for item in answer:
                found = ids_in(item, number)
                if found is not None:
                    return found
            return None
        values = array[0]
    elif isinstance(answer, wire.Array):
        values = answer.values
    else:
        return None
    whole = values.dtype.kind in "iu" or (
        values.dtype.kind == "f" and bool((values == np.floor(values)).all())
    )
    fits = values.shape in ((number,), (number, 1), (1, number)) or (number == 1 and values.size == 1)
    return values.reshape(-1).astype(np.int64) if whole and fits else None


def other_form(answers: Sequence[Any]) -> str:
    """What a function returns that returns no distribution: a token, ids of tokens, or a mask; else nothing."""
    if any(ids_in(answer, n) is not None for answer in answers for n in (1, 2)):
        return "a token"
    arrays = [array for answer in answers if (array := as_array(answer)) is not None]
    kinds = {array[0].dtype.kind for array in arrays}
    return "a mask" if kinds == {"b"} else "token ids" if kinds and kinds <= set("iu") else ""

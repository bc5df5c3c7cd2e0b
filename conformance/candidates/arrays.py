"""The arrays that an object of the candidate holds: found, named, kept from gradients, differentiated by.

Runs on the candidate's side, with what PyTorch has if it was imported.
"""

from __future__ import annotations

import contextlib
import math
import re
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sized
from typing import Any

import numpy as np

GRADIENT = re.compile(r"(.*_)?(grad|gradient)s?|.*[a-z0-9](Grad|Gradient)s?")
MAX_ARRAYS = 20_000  # of one object; more are not listed


@contextlib.contextmanager
def empty_is_nan(torch: Any) -> Iterator[None]:
    """While an object is built, memory that nobody has written yet holds NaN in place of whatever was there."""
    if torch is None:
        yield
        return
    before = torch.empty

    def empty(*args: Any, **kwargs: Any) -> Any:
        made = before(*args, **kwargs)
        if isinstance(made, torch.Tensor) and made.is_floating_point() and made.device.type != "meta":
            with torch.no_grad():
                made.fill_(math.nan)
        return made

    torch.empty = empty
    try:
        yield
    finally:
        torch.empty = before


def fill_uninitialised(value: Any, torch: Any) -> None:
    """Weights that a constructor left for others to set (``model.apply(init)``) get usual values; buffers get 0."""
    if torch is None or not isinstance(value, torch.nn.Module):
        return
    with torch.no_grad():
        for _, _, _, array in parameters_of(value):
            if isinstance(array, torch.Tensor) and (missing := torch.isnan(array)).any():
                scale = max(1, array.shape[-1] if array.dim() else 1) ** -0.5
                usual = torch.randn_like(array) * (scale if isinstance(array, torch.nn.Parameter) else 0.0)
                array.copy_(torch.where(missing, usual, array))


def parameters_of(value: Any, repeated: bool = False) -> list[tuple[str, Any, Any, Any]]:
    """Trainable and plain arrays of an object wherever they are: registered, in lists, in attributes.

    A part that stands in several places is visited once, or with ``repeated`` in each of them.  Gradients that
    an object without PyTorch keeps beside its weights are none of them.
    """
    torch = sys.modules.get("torch")
    found: list[tuple[str, Any, Any, Any]] = []
    seen: set[int] = set()

    def is_array(item: Any) -> bool:
        if torch is not None and isinstance(item, torch.Tensor):
            return item.is_floating_point()
        return isinstance(item, np.ndarray) and item.dtype.kind == "f"

    def visit(item: Any, name: str, owner: Any, key: Any, depth: int) -> None:
        if depth > 12 or len(found) > MAX_ARRAYS:
            return
        if is_array(item):
            found.append((name, owner, key, item))
            return
        if id(item) in seen:
            return
        children(item, name, depth)
        if repeated:  # it counts as seen only while it is on the way, so that a circle ends
            seen.discard(id(item))

    def children(item: Any, name: str, depth: int) -> None:
        module = torch is not None and isinstance(item, torch.nn.Module)
        if isinstance(item, list | tuple):
            seen.add(id(item))
            for index, child in enumerate(item):
                visit(child, f"{name}.{index}", item, index, depth + 1)
        elif isinstance(item, dict):
            seen.add(id(item))
            for child_name, child in item.items():
                if not is_gradient(child_name, item):
                    visit(child, f"{name}.{child_name}", item, child_name, depth + 1)
        elif (
            hasattr(item, "__dict__")
            and not isinstance(item, type | types.ModuleType)
            and not callable(getattr(item, "__code__", None))
        ):
            seen.add(id(item))
            attributes = dict(vars(item))
            for group in ("_parameters", "_buffers", "_modules"):
                attributes.update(attributes.pop(group, None) or {})
            for child_name, child in attributes.items():
                if not module and is_gradient(child_name, attributes):
                    continue
                if not child_name.startswith("_") or is_array(child):
                    visit(child, f"{name}.{child_name}" if name else child_name, item, child_name, depth + 1)

    visit(value, "", None, None, 0)
    return found


def is_gradient(name: Any, beside: Mapping[Any, Any]) -> bool:
    """Whether a name is that of a gradient which an object keeps: ``grad``, ``W_grad``, or ``dW`` beside ``W``."""
    if not isinstance(name, str):
        return False
    if GRADIENT.fullmatch(name):
        return True
    weight = re.sub(r"^_?(grad_?|d_?)", "", name)
    held, like = beside[name], beside.get(weight)
    return weight != name and held is not None and type(held) is type(like) and _sizes(held) == _sizes(like)


def _sizes(value: Any) -> Any:
    return getattr(value, "shape", None) or (len(value) if isinstance(value, Sized) else type(value))


@contextlib.contextmanager
def frozen(value: Any, names: Collection[str]) -> Iterator[None]:
    """Parameters of a module that ask for no gradient for a while."""
    found = parameters_of(value) if names else []
    chosen = [tensor for name, *_, tensor in found if name in names and tensor.requires_grad]
    for tensor in chosen:
        tensor.requires_grad_(False)
    try:
        yield
    finally:
        for tensor in chosen:
            tensor.requires_grad_(True)


def is_lazy(value: Any) -> bool:
    """Whether a module has weights that take their shape from the first call."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.nn.Module):
        return False
    return any(isinstance(p, torch.nn.parameter.UninitializedParameter) for p in value.parameters())


def kind_of(owner: Any, key: Any, tensor: Any) -> str:
    """``parameter``, ``buffer`` or ``plain``: how an object holds an array."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.nn.Parameter):
        return "parameter"
    return "buffer" if (getattr(owner, "_buffers", None) or {}).get(key) is tensor else "plain"


def by_autograd(
    tensors: list[Any], result: Callable[[], Any], cotangents: np.ndarray
) -> list[np.ndarray] | None:
    """(K, *shape) for each tensor; None where PyTorch cannot tell."""
    torch = sys.modules.get("torch")
    if torch is None or not all(isinstance(t, torch.Tensor) and t.is_leaf for t in tensors):
        return None
    before = [tensor.requires_grad for tensor in tensors]
    try:
        for tensor in tensors:
            tensor.requires_grad_(True)
        found = result()
        if not isinstance(found, torch.Tensor) or not found.requires_grad:
            return None
        rows = [
            torch.autograd.grad(
                (found * torch.from_numpy(cotangent).to(found)).sum(),
                tensors,
                retain_graph=True,
                allow_unused=True,
            )
            for cotangent in cotangents
        ]
    finally:
        for tensor, flag in zip(tensors, before, strict=True):
            tensor.requires_grad_(flag)
    return [
        np.stack([(torch.zeros_like(t) if row[n] is None else row[n]).detach().cpu().numpy() for row in rows])
        for n, t in enumerate(tensors)
    ]


def by_differences(tensors: list[Any], result: Callable[[], Any], cotangents: np.ndarray) -> list[np.ndarray]:
    """The same by moving one element at a time."""
    torch = sys.modules.get("torch")
    count = len(cotangents)

    def moved(tensor: Any, place: tuple[int, ...], value: float) -> np.ndarray:
        tensor[place] = value
        return np.asarray(result(), dtype=np.float64).reshape(-1)

    found = []
    with torch.no_grad() if torch is not None else contextlib.nullcontext():
        flat = cotangents.reshape(count, -1)
        for tensor in tensors:
            shape = tuple(tensor.shape)
            step = 1e-5 if "64" in str(tensor.dtype) else 1e-2
            gradient = np.zeros((count, *shape))
            for place in np.ndindex(*shape):
                old = float(tensor[place])
                change = moved(tensor, place, old + step) - moved(tensor, place, old - step)
                tensor[place] = old
                gradient[(slice(None), *place)] = flat @ change / (2 * step)
            found.append(gradient)
    return found

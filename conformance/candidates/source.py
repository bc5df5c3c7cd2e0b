"""What the text of a candidate's code says: what it mentions, which classes stand behind annotations.

Runs on the candidate's side.  Standard library only.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import math
import re
import sys
import types
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any


def reached(home: Any, own: frozenset[str]) -> Iterator[types.FunctionType]:
    """The functions of a class, and of the candidate's classes and functions that they mention."""
    own = own or frozenset({home.__module__})
    seen: set[int] = set()
    left: list[Any] = [home]
    while left and len(seen) < 400:
        value = left.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, type):
            for klass in value.__mro__:
                if klass.__module__ in own:
                    left += [getattr(m, "__func__", m) for m in vars(klass).values()]
            continue
        function = inspect.unwrap(value) if callable(value) else getattr(value, "fget", None)
        if not isinstance(function, types.FunctionType) or function.__module__ not in own:
            continue
        yield function
        for name in code_names(function.__code__):
            other = function.__globals__.get(name)
            if isinstance(other, type | types.FunctionType) and other.__module__ in own:
                left.append(other)


ACTIVATIONS = {"gelu": ("gelu", "gelu_tanh"), "silu": ("silu",), "swish": ("silu",)}
RMS = re.compile(r"(?<![A-Za-z])rms|(?<![A-Z])R(MS|ms)")  # and no norms, no params


def asked_for(home: Any, own: frozenset[str], settings: Sequence[Any] = ()) -> list[str]:
    """What code asks for by name that no lesson teaches, in its text, its defaults or its settings.

    Other activations than ReLU, ``rms`` for an RMSNorm, ``grad`` where it handles gradients itself.
    """
    said: dict[str, set[str]] = {}  # by class
    for function in reached(home, own):
        names = said.setdefault(function.__qualname__.rpartition(".")[0] or function.__name__, set())
        names.update(code_names(function.__code__, strings=True))
        names.update(map(named, (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())))
        if any(isinstance(node, ast.Pow) for node in ast.walk(tree_of(function))):
            names.add("pow")
    every = {name for names in said.values() for name in names} | set(map(named, settings))
    found = [v for part, v in ACTIVATIONS.items() if any(part in name.lower() for name in every)]
    squared = any(
        any("relu" in name.lower() for name in names) and names & {"pow", "square"} for names in said.values()
    )
    return [
        *(value for values in found for value in values),
        *(["relu_squared"] if squared else []),
        *(["rms"] if any(RMS.search(name) for name in (*every, getattr(home, "__name__", ""))) else []),
        *(["grad"] if "grad" in every else []),
    ]


TORCH_ATTENTION = re.compile(r"MultiheadAttention|Transformer(En|De)coder(Layer)?")


def hands_masks_on(home: type, own: frozenset[str]) -> list[str]:
    """To which of PyTorch's layers with attention a class hands its masks; ``~`` where it may turn them around."""
    nodes = [node for klass in home.__mro__ if klass.__module__ in own for node in ast.walk(tree_of(klass))]
    names = {node.attr if isinstance(node, ast.Attribute) else node.id for node in nodes
             if isinstance(node, ast.Attribute | ast.Name)}  # fmt: skip
    namespace = vars(sys.modules.get(home.__module__, types))
    torchs = sorted(
        name
        for name in names
        if TORCH_ATTENTION.fullmatch(name)
        and getattr(namespace.get(name), "__module__", "torch").startswith("torch")
    )
    turned = names & {"logical_not", "bitwise_not", "eq", "masked_fill", "masked_fill_", "where", "rsub"}
    return [*torchs, *(["~"] if turned or any(map(_turns_a_mask, nodes)) else [])]


OF_MASKS = re.compile(r"mask|msk|pad|hid|allow|block|visib", re.IGNORECASE)


def _turns_a_mask(node: ast.AST) -> bool:
    """``~mask``, ``mask == 0``, ``1 - mask``; not ``mask is None``."""
    if isinstance(node, ast.Compare):
        turns = not all(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops)
    else:
        turns = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            return True
    return turns and OF_MASKS.search(ast.unparse(node)) is not None


def named(value: Any) -> str:
    """What a value says by itself: a short text, or the name of a function, class or layer."""
    if isinstance(value, str):
        return value if len(value) < 20 else ""
    value = getattr(value, "func", value)
    is_named = isinstance(value, type | types.FunctionType | types.BuiltinFunctionType)
    return value.__name__ if is_named else type(value).__name__


def code_names(code: types.CodeType, *, strings: bool = False) -> list[str]:
    """The names that a function and those within it mention, and with ``strings`` short texts too."""
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += code_names(constant, strings=strings)
        elif strings and isinstance(constant, str) and len(constant) < 20:
            names.append(constant)
    return names


@lru_cache(maxsize=256)
def tree_of(value: Any) -> ast.AST:
    """The source of a function or class as a tree; an empty one where it cannot be had."""
    with contextlib.suppress(OSError, TypeError, SyntaxError, ValueError, IndexError):
        source = inspect.getsource(value)
        return ast.parse("if True:\n " + source.replace("\n", "\n ") if source[0].isspace() else source)
    return ast.Module([], [])


def own_class(home: type, annotation: Any, own: frozenset[str]) -> type | None:
    """The candidate's class that a parameter is annotated with."""
    if isinstance(annotation, str):
        annotation = vars(sys.modules.get(home.__module__, types)).get(annotation.strip("'\""))
    known = isinstance(annotation, type) and annotation.__module__ in (own or {home.__module__})
    return annotation if known else None


def is_callable(home: type) -> bool:
    """Whether the objects of a class can be called, as layers are."""
    return callable(getattr(home, "forward", None)) or "__call__" in vars(home)


def described(name: str, spelled: str, default: Any, *, given: bool = True, part: str = "") -> dict[str, Any]:
    """A setting as one more parameter of a constructor; ``part`` is the kind of submodule that takes it."""
    finite = isinstance(default, float) and math.isfinite(default)
    plain = default if finite or isinstance(default, bool | int | str | None) else repr(default)[:200]
    return {
        "name": name, "spelled": spelled, "kind": "KEYWORD_ONLY", "has_default": given,
        "default": plain if given else None, "annotation": "", "part": part,
    }  # fmt: skip

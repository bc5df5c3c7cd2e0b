"""Submodules that a constructor takes: which class of the candidate each of them is made from.

Runs on the candidate's side, beside :mod:`.settings`.  ``DecoderLayer(size, self_attn, feed_forward)`` is described
with the parameters of its parts, ``self_attn.h`` and ``feed_forward.d_ff``, and its parts are made when it is built.
Standard library only.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeGuard

from .source import described, is_callable, own_class, reached, tree_of

# What a part is, by the name of its parameter or of its class: the first that fits.
KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("attention", re.compile(r"attn|attention|mha|multihead")),
    ("feed_forward", re.compile(r"feedforward|ffn|mlp|pointwise|positionwise|^p?ff$")),
    ("norm", re.compile(r"norm|^ln\d*$")),
    ("block", re.compile(r"layer|block")),
    ("stack", re.compile(r"^(en|de)coder$")),
)
NUMBERS = re.compile(
    r"dim|size|hidden|inner|heads|nhead|drop|rate|multiplier|mult$|ratio|factor|width|num|count|nlayer|nblock|sublayer"
)
SEVERAL = re.compile(r"ModuleList|[Ll]ist\b|Sequence|Iterable")
DEPTH = 4  # of parts within parts


@dataclass(frozen=True)
class Part:
    """A parameter that takes a submodule, or ``several`` of one kind, and the class that it is made from."""

    parameter: str
    kind: str
    home: type
    several: bool = False

    def described(self, own: frozenset[str], depth: int) -> Iterator[dict[str, Any]]:
        """The parameters of the part's constructor as further ones of the whole."""
        start = f"{self.parameter}."
        if self.several:
            yield described(f"{start}len", "n_layers", 2)
        inner = parts_of(self.home, own) if depth < DEPTH else {}
        for parameter in _signature(self.home):
            if parameter.name in inner:
                for found in inner[parameter.name].described(own, depth + 1):
                    yield {**found, "name": start + found["name"]}
                continue
            given = parameter.default is not parameter.empty
            yield described(
                start + parameter.name, parameter.name, parameter.default, given=given, part=self.kind
            )

    def make(self, named: Mapping[str, Any], own: frozenset[str]) -> Any:
        """The part itself, or a list of them."""
        if not self.several:
            return self.home(**with_parts(self.home, named, own))
        count = int(named.get("len", 2))
        rest = {name: value for name, value in named.items() if name != "len"}
        made = [self.home(**with_parts(self.home, rest, own)) for _ in range(count)]
        torch = sys.modules.get("torch")
        return torch.nn.ModuleList(made) if torch is not None else made

    def told(self, own: frozenset[str]) -> dict[str, Any]:
        """What a snippet needs to write it down."""
        inner = {name: part.told(own) for name, part in parts_of(self.home, own).items()}
        return {"kind": "part", "name": self.home.__name__, "several": self.several, "parts": inner}


def with_parts(home: type, named: Mapping[str, Any], own: frozenset[str]) -> dict[str, Any]:
    """Keyword arguments of a constructor with its parts made from those with a dot in their names."""
    given = {name: value for name, value in named.items() if "." not in name}
    for name, part in parts_of(home, own).items():
        if name not in given:
            start = f"{name}."
            inner = {key.removeprefix(start): v for key, v in named.items() if key.startswith(start)}
            given[name] = part.make(inner, own)
    return given


@lru_cache(maxsize=256)
def parts_of(home: type, own: frozenset[str]) -> dict[str, Part]:
    """The parameters of a constructor that take a submodule for which the candidate has a class."""
    needed = [p for p in _signature(home) if p.default is p.empty]
    found = {p.name: part for p in needed if (part := _part(home, p, own))}
    if not any(_is_called(home, name) for name in found):  # it may well have forgotten one of several
        found = {n: part for n, part in found.items() if part.several or n in _annotated_ones(home, own)}
    return found


def _annotated_ones(home: type, own: frozenset[str]) -> set[str]:
    return {p.name for p in _signature(home) if _layer_class(home, p.annotation, own) is not None}


def takes_parts(home: type, own: frozenset[str]) -> bool:
    """Whether a constructor takes submodules, of a known kind or of another."""
    for parameter in _signature(home):
        if parameter.default is not parameter.empty or _is_number(parameter):
            continue
        annotated = _layer_class(home, parameter.annotation, own)
        if (
            annotated is not None
            or "Module" in _text(parameter.annotation)
            or _is_called(home, parameter.name)
        ):
            return True
    return False


@lru_cache(maxsize=256)
def _is_called(home: type, parameter: str) -> bool:
    """Whether a class keeps what it is given for a parameter, or copies of it, and calls that; nobody calls a size."""
    tree = tree_of(home)
    kept: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            pairs = [pair for target in node.targets for pair in _paired(target, node.value)]
            kept |= {
                t.attr for t, value in pairs if isinstance(t, ast.Attribute) and _is_kept(value, parameter)
            }
    for node in ast.walk(tree):
        used: list[ast.expr] = []
        if isinstance(node, ast.Call):
            used = [node.func]
            if _of_self(node.func):  # self.sublayer[0](x, self.feed_forward)
                used += node.args
        elif isinstance(node, ast.For | ast.comprehension):
            used = [node.iter]
            if isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) in (
                "enumerate",
                "zip",
                "reversed",
            ):
                used += node.iter.args
        for value in used:
            while isinstance(value, ast.Subscript):
                value = value.value
            if _is_own(value) and value.attr in kept:
                return True
    return False


def _paired(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """What is assigned to what, ``a, b = x, y`` taken apart."""
    several = (ast.Tuple, ast.List)
    if isinstance(target, several) and isinstance(value, several) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def _of_self(node: ast.expr) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return _is_own(node)


def _is_own(node: ast.expr) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _is_kept(value: ast.expr, parameter: str) -> bool:
    """Whether a value is what was given for a parameter, or copies of it."""
    if isinstance(value, ast.Name):
        return value.id == parameter
    if isinstance(value, ast.List | ast.Tuple):
        return any(_is_kept(item, parameter) for item in value.elts)
    if isinstance(value, ast.ListComp | ast.GeneratorExp):
        return _is_kept(value.elt, parameter)
    if isinstance(value, ast.Call):
        name = ast.unparse(value.func).lower()
        copies = (
            re.search(r"clone|copy|copies|modulelist|sequential|repeat|replicate|stack", name) is not None
        )
        return copies and any(_is_kept(item, parameter) for item in value.args)
    return False


def factory_of(home: type) -> types.FunctionType | None:
    """The candidate's function that makes an object of this class and returns it: ``make_model``."""
    functions = [
        value
        for value in vars(sys.modules.get(home.__module__, types.ModuleType(""))).values()
        if isinstance(value, types.FunctionType) and value.__module__ == home.__module__
    ]
    public = (function for function in functions if not function.__name__.startswith("_"))
    return next((function for function in public if home.__name__ in _returned(function)), None)


def _returned(function: types.FunctionType) -> set[str]:
    """The classes of which a function returns a new object, as far as its text shows."""
    tree = tree_of(function)
    made: dict[str, str] = {}
    found: set[str] = set()
    for node in ast.walk(tree):
        value = getattr(node, "value", None)
        if isinstance(node, ast.Assign) and (called := _class_called(value)):
            made.update({t.id: called for t in node.targets if isinstance(t, ast.Name)})
    for node in ast.walk(tree):
        if isinstance(node, ast.Return):
            if called := _class_called(node.value):
                found.add(called)
            value = node.value
            while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):  # model.to(device)
                value = value.func.value
            if isinstance(value, ast.Name) and value.id in made:
                found.add(made[value.id])
    return found


def _class_called(node: ast.expr | None) -> str:
    """``Name`` of ``Name(…)`` or ``Name(…).to(device)``."""
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            return node.func.id
        node = node.func.value if isinstance(node.func, ast.Attribute) else None
    return ""


def _part(home: type, parameter: inspect.Parameter, own: frozenset[str]) -> Part | None:
    if _is_number(parameter):
        return None
    plain, several = _plain(parameter.name), bool(SEVERAL.search(_text(parameter.annotation)))
    annotated = _layer_class(home, parameter.annotation, own)
    if annotated is not None:
        kind = _kind(_plain(annotated.__name__)) or _kind(plain)
        return Part(parameter.name, kind, annotated) if kind and annotated is not home else None
    kind = _kind(plain)
    if kind is None or NUMBERS.search(plain) or (kind == "block" and plain.endswith("s") and not several):
        return None
    modules = [home.__module__, *sorted(own - {home.__module__})]  # its own file before others of a folder
    for module in modules:
        known = [c for c in _classes(module, own) if c is not home and _fits(c, kind, plain, home)]
        if known:
            return Part(parameter.name, kind, max(known, key=lambda c: _nearness(c, kind, plain)), several)
    return None


def _classes(module: str, own: frozenset[str]) -> list[type]:
    """The candidate's classes in the namespace of a module whose objects can be called."""
    values = vars(sys.modules.get(module, types.ModuleType(module))).values()
    found = {
        id(v): v for v in values if isinstance(v, type) and v.__module__ in {*own, module} and is_callable(v)
    }
    return list(found.values())


def _fits(candidate: type, kind: str, plain: str, home: type) -> bool:
    name = _plain(candidate.__name__)
    if kind == "stack":
        return plain in name and _kind(name) in (None, "stack")
    if kind == "block":  # a decoder is made of decoder layers
        sides = {side for side in ("encoder", "decoder") if side in _plain(home.__name__) + plain}
        return _kind(name) == "block" and "sublayer" not in name and all(side in name for side in sides)
    return _kind(name) == kind


def _nearness(candidate: type, kind: str, plain: str) -> tuple[int, int]:
    """How well a class suits a parameter beside others of its kind; the first of equals is taken."""
    name = _plain(candidate.__name__)
    across = re.compile(r"cross|src|source|memory|enc")
    alike = int(bool(across.search(plain)) == bool(across.search(name)))
    return (alike, int("multi" in name)) if kind == "attention" else (0, 0)


def _kind(plain: str) -> str | None:
    return next((kind for kind, known in KINDS if known.search(plain)), None)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _text(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _is_number(parameter: inspect.Parameter) -> bool:
    return _text(parameter.annotation).strip("'\"") in ("int", "float", "bool", "str")


def _layer_class(home: type, annotation: Any, own: frozenset[str]) -> type | None:
    """The candidate's class that a parameter is annotated with, if its objects can be called."""
    found = own_class(home, annotation, own)
    return found if found is not None and is_callable(found) else None


def used(home: type, own: frozenset[str]) -> list[str]:
    """The candidate's classes and functions that a class uses, its parts among them."""
    homes, names = [home], dict[str, None]()
    while homes:
        current = homes.pop()
        names |= dict.fromkeys(f.__qualname__.partition(".")[0] for f in reached(current, own))
        homes += [p.home for p in parts_of(current, own).values() if p.home.__name__ not in names]
    return [name for name in names if name != home.__name__]


def _signature(home: type) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(home).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY)]

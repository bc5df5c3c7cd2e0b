"""Sizes that a class takes from elsewhere than parameters of its own: from a configuration that it is given, or from
constants of its module.

Runs on the candidate's side. Each such size is described as one more parameter of the constructor, named
``config.n_embd`` or ``global n_embd``, and put in its place when an object is built. Standard library only.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import inspect
import math
import re
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from . import parts
from .source import code_names, described, is_callable, own_class, reached, tree_of

GLOBAL = "global "
NAMED_CONFIG = re.compile(
    r"((model|gpt|transformer|decoder|net|lm|m)_?)?"
    r"(config|configs|configuration|cfg|conf|args|arguments|hparams?|hyper_?param(eter)?s?|params|opts?|options|settings|hps?)",
    re.IGNORECASE,
)
# What a field gets of which nothing is known but its name.
USUAL: tuple[tuple[str, Any], ...] = (
    (r"drop", 0.0),
    (r"eps", 1e-5),
    (r"std|init|range", 0.02),
    (r"theta|base", 10000.0),
    (r"device|dtype|kv", None),
    (r"vocab|token", 16),
    (r"layer|depth|block(s|_num)$", 2),
    (r"block|context|ctx|max|len|position|window", 64),
    (r"batch", 4),
)


@dataclasses.dataclass(frozen=True)
class Config:
    """A parameter that takes a configuration: the fields that are read, and what one is made from.

    ``kind`` is ``class`` (of the candidate), ``value`` (that its file defines), ``dict`` or ``fields`` (neither).
    """

    parameter: str
    fields: tuple[str, ...]
    kind: str
    name: str = ""
    origin: Any = None

    def default(self, field: str) -> Any:
        """What the file says the field is, if nobody sets it."""
        origin = self.origin
        if self.kind == "dict":
            return origin.get(field, usual(field)) if origin else usual(field)
        if isinstance(origin, type) and dataclasses.is_dataclass(origin):
            known = {f.name: f.default for f in dataclasses.fields(origin)}
            return (
                usual(field) if known.get(field, dataclasses.MISSING) is dataclasses.MISSING else known[field]
            )
        return getattr(origin, field, usual(field))

    def make(self, given: Mapping[str, Any]) -> Any:
        """A configuration with those values, and its own or the usual ones for all others."""
        values = {field: self.default(field) for field in self.fields}
        values |= given
        for field in self.fields:  # dropout has many names; what one is set to holds for all
            dropout = [value for name, value in given.items() if "drop" in name.lower()]
            if dropout and "drop" in field.lower() and field not in given:
                values[field] = dropout[0]
        if self.kind == "dict":
            return {**(self.origin or {}), **values}
        made: Any = None
        if self.kind == "value":
            made = copy.copy(self.origin)
        elif self.kind == "class":
            made = _instance(self.origin, values)
        if made is None:
            made = types.SimpleNamespace()
        for field, value in values.items():
            with contextlib.suppress(AttributeError, TypeError):  # a property; a frozen one has it already
                if getattr(made, field, _MISSING) is not value:
                    setattr(made, field, value)
        return made


_MISSING = object()


def usual(field: str) -> Any:
    return next((value for pattern, value in USUAL if re.search(pattern, field.lower())), False)


def _instance(home: type, values: Mapping[str, Any]) -> Any:
    """An instance of a configuration's class; None where it cannot be made."""
    with contextlib.suppress(Exception):
        known = inspect.signature(home).parameters
        free = any(p.kind is p.VAR_KEYWORD for p in known.values())
        given = {name: value for name, value in values.items() if free or name in known}
        for name, parameter in known.items():
            if parameter.default is parameter.empty and parameter.kind in (
                parameter.POSITIONAL_OR_KEYWORD,
                parameter.KEYWORD_ONLY,
            ):
                given.setdefault(name, usual(name))
        return home(**given)
    return None


def extended(
    home: type, parameters: Sequence[Mapping[str, Any]] | None, own: frozenset[str]
) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
    """The constructor's parameters with settings beside them, and how each configuration is made; None for none."""
    if parameters is None:
        return None
    configs, taken = configs_of(home, own), parts.parts_of(home, own)
    found = [dict(p) for p in parameters if p["name"] not in {*configs, *taken}]
    written = {p["name"] for p in parameters}
    for part in taken.values():
        found += part.described(own, 0)
    for config in configs.values():
        found += [
            described(f"{config.parameter}.{field}", field, config.default(field)) for field in config.fields
        ]
    found += [
        described(GLOBAL + name, places[0].key, places[0].get())
        for name, places in globals_of(home, own).items()
        if name not in written
    ]
    if len(found) == len(parameters) and not configs and not taken:
        return None
    told = {c.parameter: {"kind": _told(c), "name": c.name} for c in configs.values()}
    return found, {**told, **{name: part.told(own) for name, part in taken.items()}}


def _told(config: Config) -> str:
    """The kind of a configuration; ``bare`` for a class whose fields are set after it was made."""
    if config.kind == "class":
        with contextlib.suppress(TypeError, ValueError):
            return "class" if inspect.signature(config.origin).parameters else "bare"
    return config.kind


def filled(home: Any, named: Mapping[str, Any], own: frozenset[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keyword arguments with configurations made, and the constants to be set while the object is used."""
    if not isinstance(home, type):
        return dict(named), {}
    constants = {k.removeprefix(GLOBAL): v for k, v in named.items() if k.startswith(GLOBAL)}
    plain = parts.with_parts(home, {k: v for k, v in named.items() if not k.startswith(GLOBAL)}, own)
    for parameter, config in configs_of(home, own).items():
        if parameter not in plain:
            start = f"{parameter}."
            plain[parameter] = config.make(
                {k.removeprefix(start): v for k, v in named.items() if k.startswith(start)}
            )
    known = globals_of(home, own)
    return plain, {k: v for k, v in {**plain, **constants}.items() if k in known and _is_number(v)}


@contextlib.contextmanager
def constants_set(home: Any, constants: Mapping[str, Any], own: frozenset[str]) -> Iterator[None]:
    """Constants of the candidate's modules as an object needs them, and afterwards as they were."""
    before: list[tuple[Place, Any]] = []
    try:
        for name, places in globals_of(home, own).items() if constants else ():
            for place in places if name in constants else ():
                before.append((place, place.get()))
                place.set(constants[name])
        yield
    finally:
        for place, value in before:
            place.set(value)


# what a class reads


@lru_cache(maxsize=64)
def globals_of(home: type, own: frozenset[str]) -> dict[str, list[Place]]:
    """Numbers of its modules that a class and what it uses read, by how they are written there, and where they stand.

    ``n_embd``, and where a module has a configuration of its own ``cfg.n_embd`` or ``cfg['n_embd']``.
    """
    found: dict[str, list[Place]] = {}

    def add(written: str, place: Place) -> None:
        places = found.setdefault(written, [])
        if not any(place.holder is other.holder for other in places):
            places.append(place)

    for function in reached(home, own):
        scope = function.__globals__
        for name in code_names(function.__code__):
            if _is_number(scope.get(name)) and not name.startswith("__"):
                add(name, Place(scope, name))
        if not any(_holds_values(scope.get(name), own) for name in function.__code__.co_names):
            continue
        for node in sorted(ast.walk(tree_of(function)), key=_place):
            if not (isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.value, ast.Name)):
                continue
            holder = scope.get(node.value.id)
            key = node.attr if isinstance(node, ast.Attribute) else getattr(node.slice, "value", None)
            if isinstance(key, str) and isinstance(holder, dict) == isinstance(node, ast.Subscript):
                place = Place(holder, key)
                if _holds_values(holder, own) and _is_number(place.get()):
                    add(ast.unparse(node), place)
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class Place:
    """Where a number stands: under a key of a namespace or dict, or in an attribute."""

    holder: Any
    key: str

    def get(self) -> Any:
        return (
            self.holder.get(self.key)
            if isinstance(self.holder, dict)
            else getattr(self.holder, self.key, None)
        )

    def set(self, value: Any) -> None:
        if isinstance(self.holder, dict):
            self.holder[self.key] = value
        else:
            setattr(self.holder, self.key, value)


def _holds_values(holder: Any, own: frozenset[str]) -> bool:
    """Whether a global is a configuration: a dict, a module, class or object of the candidate that is never called."""
    if isinstance(holder, types.ModuleType):
        return holder.__name__ in own
    if isinstance(holder, dict):
        return True
    home = holder if isinstance(holder, type) else type(holder)
    known = own if isinstance(holder, type) else {*own, "types", "argparse"}
    return home.__module__ in known and home is not types.FunctionType and not is_callable(home)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@lru_cache(maxsize=64)
def configs_of(home: type, own: frozenset[str]) -> dict[str, Config]:
    """The parameters of a constructor that take a configuration."""
    own = own or frozenset({home.__module__})
    try:
        parameters = inspect.signature(home).parameters.values()
    except (TypeError, ValueError):
        return {}
    found: dict[str, Config] = {}
    for parameter in parameters:
        default = parameter.default
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if default is not parameter.empty and isinstance(default, bool | int | float | str | None):
            continue
        annotated = own_class(home, parameter.annotation, own)
        if annotated is not None and is_callable(annotated):
            annotated = None
        if annotated is None and not NAMED_CONFIG.fullmatch(parameter.name):
            continue
        fields, by_key = _fields(home, parameter.name, own)
        if fields:
            found[parameter.name] = _config(home, parameter.name, fields, by_key, annotated, own)
    return found


def defaults(home: type, own: frozenset[str]) -> list[Any]:
    """What stands in the configurations of a constructor if nobody sets it."""
    return [c.default(field) for c in configs_of(home, own).values() for field in c.fields]


def _config(
    home: type,
    parameter: str,
    fields: Sequence[str],
    by_key: bool,
    annotated: type | None,
    own: frozenset[str],
) -> Config:
    values = [
        (name, value)
        for module in dict.fromkeys(f.__module__ for f in reached(home, own))
        for name, value in vars(sys.modules.get(module, types.ModuleType(module))).items()
    ]
    if by_key:
        dicts = [(n, v) for n, v in values if isinstance(v, dict) and set(fields) & set(v)]
        name, value = max(dicts, key=lambda item: len(set(fields) & set(item[1])), default=("", None))
        return Config(parameter, tuple(fields), "dict", name, value)
    if annotated is not None:
        return Config(parameter, tuple(fields), "class", annotated.__name__, annotated)
    classes = [
        (name, value)
        for name, value in values
        if isinstance(value, type)
        and value.__module__ in own
        and not is_callable(value)
        and 2 * _knows(value, fields) >= len(fields)
    ]
    if classes:
        name, value = max(classes, key=lambda item: _knows(item[1], fields))
        return Config(parameter, tuple(fields), "class", name, value)
    for name, value in values:
        if type(value).__module__ in (*own, "types", "argparse") and _knows(value, fields) == len(fields):
            return Config(parameter, tuple(fields), "value", name, value)
    return Config(parameter, tuple(fields), "fields")


def _knows(value: Any, fields: Sequence[str]) -> int:
    """How many of the fields a class or an object has."""
    own = {f.name for f in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    if isinstance(value, type):
        own |= set(getattr(value, "__annotations__", {}))
        with contextlib.suppress(TypeError, ValueError):
            own |= set(inspect.signature(value).parameters)
    return sum(field in own or hasattr(value, field) for field in fields)


def _fields(home: type, parameter: str, own: frozenset[str]) -> tuple[list[str], bool]:
    """The fields of a configuration that the candidate reads, and whether it reads them as those of a dict."""
    names = {parameter}
    found: dict[str, bool] = {}
    for function in reached(home, own):
        tree = tree_of(function)
        called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        for node in sorted(ast.walk(tree), key=_place):
            if isinstance(node, ast.Attribute) and _is_config(node.value, names) and id(node) not in called:
                found.setdefault(node.attr, False)
            elif isinstance(node, ast.Subscript) and _is_config(node.value, names):
                key = node.slice
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    found.setdefault(key.value, True)
    return list(found), any(found.values())


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _is_config(node: ast.expr, names: set[str]) -> bool:
    return (isinstance(node, ast.Name) and node.id in names) or (
        isinstance(node, ast.Attribute)
        and node.attr.lstrip("_") in names
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )

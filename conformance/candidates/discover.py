"""Runs on the candidate's side: describes what a target defines, as plain data.

Only names, signatures, docstrings and the like leave this module; what they mean is decided by the
checker (:mod:`.binding`).  Standard library only, so that a NumPy candidate never pays for torch.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import linecache
import math
import re
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

from . import parts, settings, source

MAX_OBJECTS = 2000
MAX_DOC = 6000


def describe(
    modules: Mapping[str, types.ModuleType], own: set[str], named: list[str]
) -> list[dict[str, Any]]:
    """Every public object that the candidate defines, and those that ``named`` asks for by dotted name."""
    entries: list[dict[str, Any]] = []
    seen: dict[int, int] = {}
    for module_name, module in modules.items():
        for attribute, value in list(vars(module).items()):
            if attribute.startswith("__") or len(entries) >= MAX_OBJECTS:
                continue
            entry = describe_object(f"{module_name}:{attribute}", attribute, value, own)
            if entry is None or not entry["own"]:
                continue
            if attribute.startswith("_"):
                entry["private"] = True
            previous = seen.get(id(value))
            if previous is not None:  # an alias: keep the name under which it was written
                if attribute == entry["defined_as"]:
                    entries[previous] = entry
                continue
            seen[id(value)] = len(entries)
            entries.append(entry)
            entries += _static_methods(module_name, attribute, value, own)
    factories = {entry.get("factory") for entry in entries}
    entries = [entry for entry in entries if entry["path"] not in factories]  # judged as what they make
    for dotted in named:
        for module_name, module in modules.items():
            value = resolve(module, dotted)
            if value is not None:
                entry = describe_object(f"{module_name}:{dotted}", dotted, value, own)
                if entry is not None:
                    entry["named"] = True
                    entries = [e for e in entries if e["path"] != entry["path"]]
                    entries.append(entry)
                break
    return entries


def _static_methods(module: str, name: str, home: Any, own: set[str]) -> list[dict[str, Any]]:
    """The static and class methods of a class that only groups functions."""
    if not isinstance(home, type) or _is_module_class(home):
        return []
    found = []
    for method, value in vars(home).items():
        if isinstance(value, staticmethod | classmethod) and not method.startswith("_"):
            entry = describe_object(
                f"{module}:{name}.{method}", f"{name}.{method}", getattr(home, method), own
            )
            if entry is not None:
                words = f"{home.__doc__ or ''}\n\n{entry['file_doc']}"[:MAX_DOC]
                found.append({**entry, "own": True, "file_doc": words})
    return found


def resolve(module: Any, dotted: str) -> Any:
    """The object of that dotted name within a module, or None."""
    value = module
    for part in dotted.split("."):
        value = getattr(value, part, None)
        if value is None:
            return None
    return value


def describe_object(path: str, name: str, value: Any, own: set[str]) -> dict[str, Any] | None:
    """One object as plain data; None for what no role can be (numbers, strings, modules), or what resists."""
    try:
        return _describe(path, name, value, own)
    except Exception:  # an object may lie about anything that is asked of it
        return None


def _describe(path: str, name: str, value: Any, own: set[str]) -> dict[str, Any] | None:
    if isinstance(value, types.ModuleType) or not callable(value):
        return None
    kind = "class" if isinstance(value, type) else "function" if _is_function(value) else "instance"
    home = type(value) if kind == "instance" else value
    defined_in = getattr(getattr(value, "func", home) if _is_partial(value) else home, "__module__", None)
    entry: dict[str, Any] = {
        "path": path,
        "name": name,
        "kind": kind,
        "own": defined_in in own,
        "named": False,
        "defined_as": getattr(value, "__name__", type(value).__name__ if kind == "instance" else name),
        "doc": _words(home),
        "file_doc": _file_words(home),
        "frameworks": _frameworks(home),
        "params": [],
        "methods": {},
        "module_class": _is_module_class(home),
        "line": _line(home),
        "file": _file(home),
        **_facts_of_code(value if kind == "function" else home, name, frozenset(own)),
    }
    if kind == "function":
        entry["params"] = _parameters(value, name)
        entry["asked_for"] = source.asked_for(value, frozenset(own))
    else:
        if kind == "class":
            entry["init"] = _parameters(value, name)
            assert isinstance(value, type)
            entry["asked_for"] = source.asked_for(
                value, frozenset(own), settings.defaults(value, frozenset(own))
            )
            entry["uses"] = parts.used(value, frozenset(own))
            entry["hands_on"] = source.hands_masks_on(value, frozenset(own))
            home_module, taken = path.partition(":")[0], parts.takes_parts(value, frozenset(own))
            factory = parts.factory_of(value) if taken and value.__module__ == home_module else None
            more = settings.extended(value, entry["init"], frozenset(own))
            if factory is not None:
                entry["written"], entry["init"] = entry["init"], _parameters(factory, factory.__name__)
                entry["factory"] = f"{home_module}:{factory.__name__}"
            elif more is not None:
                entry["written"], (entry["init"], entry["configs"]) = entry["init"], more
        entry["methods"] = {
            method: _parameters(function, method, bound=True) for method, function in _methods(home)
        }
    return entry


def _is_function(value: Any) -> bool:
    return isinstance(
        value, types.FunctionType | types.BuiltinFunctionType | types.MethodType | functools.partial
    ) or (hasattr(value, "__wrapped__") and not isinstance(value, type))


def _is_partial(value: Any) -> bool:
    return isinstance(value, functools.partial)


def _is_module_class(home: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(home, type) and issubclass(home, torch.nn.Module)


def _methods(home: Any) -> Iterator[tuple[str, Any]]:
    base = sys.modules.get("torch")
    stop: set[type] = {object} | ({base.nn.Module} if base is not None else set())
    seen: set[str] = set()
    for klass in home.__mro__:
        if klass in stop:
            continue
        for name, value in vars(klass).items():
            function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            if name in seen or not callable(function) or (name.startswith("_") and name != "__call__"):
                continue
            seen.add(name)
            yield name, value


def _parameters(function: Any, name: str, bound: bool = False) -> list[dict[str, Any]] | None:
    """The parameters of a callable, or None where Python cannot tell."""
    static = isinstance(function, staticmethod)
    if isinstance(function, staticmethod | classmethod):
        function = function.__func__
    try:
        signature = inspect.signature(_undecorated(function, name))
    except (TypeError, ValueError):
        signature = _documented_signature(function)
        if signature is None:
            return None
    parameters = list(signature.parameters.values())
    if bound and not static:
        parameters = parameters[1:]
    if _takes_no_keywords(function):
        parameters = [
            p.replace(kind=p.POSITIONAL_ONLY) if p.kind is p.POSITIONAL_OR_KEYWORD else p for p in parameters
        ]
    result = []
    for parameter in parameters:
        has_default = parameter.default is not inspect.Parameter.empty
        default = parameter.default if has_default else None
        result.append(
            {
                "name": parameter.name,
                "kind": parameter.kind.name,
                "has_default": has_default,
                "default": _plain_default(default),
                "annotation": _annotation(parameter.annotation),
            }
        )
    return result


def _plain_default(default: Any) -> Any:
    """A default that can cross: a number, flag or text; anything else as text (JSON has no infinity)."""
    if isinstance(default, float) and not math.isfinite(default):
        return repr(default)
    return default if isinstance(default, bool | int | float | str | None) else str(type(default))


def _takes_no_keywords(function: Any) -> bool:
    """A wrapper of the form ``def wrapper(*args)``, whatever it says of the function within."""
    code = getattr(function, "__code__", None)
    return (
        code is not None
        and code.co_argcount == 0
        and bool(code.co_flags & inspect.CO_VARARGS)
        and not (code.co_flags & inspect.CO_VARKEYWORDS or code.co_kwonlyargcount)
    )


FIRST_LINE = re.compile(r"\s*(\w+)\((.*?)\)\s*(->|:|\n|$)", re.DOTALL)


def _documented_signature(function: Any) -> inspect.Signature | None:
    """What the docstring of a function written in C says of its parameters, as libraries do in its first line."""
    doc, name = getattr(function, "__doc__", None), getattr(function, "__name__", "")
    found = FIRST_LINE.match(doc) if isinstance(doc, str) else None
    if found is None or found[1] != name:
        return None
    try:
        (definition,) = ast.parse(f"def f({found[2]}): pass").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(definition, ast.FunctionDef):
        return None
    arguments = definition.args
    defaults = [None] * (len(arguments.args) - len(arguments.defaults)) + arguments.defaults
    parameters = []
    for kind, names, values in (
        (inspect.Parameter.POSITIONAL_OR_KEYWORD, arguments.args, defaults),
        (inspect.Parameter.KEYWORD_ONLY, arguments.kwonlyargs, arguments.kw_defaults),
    ):
        for parameter, value in zip(names, values, strict=True):
            default = inspect.Parameter.empty if value is None else _constant(value)
            parameters.append(inspect.Parameter(parameter.arg, kind, default=default))
    return inspect.Signature(parameters)


def _constant(node: Any) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return (annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation)))[
        :200
    ]


def _undecorated(function: Any, name: str) -> Any:
    """What a decorator without functools.wraps hides: the function of the same name in its closure."""
    function = inspect.unwrap(function)
    closure = getattr(function, "__closure__", None)
    if closure and getattr(function, "__name__", name) != name:
        for cell in closure:
            with contextlib.suppress(ValueError):
                inner = cell.cell_contents
                if isinstance(inner, types.FunctionType) and inner.__name__ == name:
                    return inner
    return function


def _frameworks(home: Any) -> list[str]:
    """``torch`` and ``numpy`` as the object's own code mentions them, most telling first."""
    if _is_module_class(home):
        return ["torch"]
    found: list[str] = []
    visited: set[int] = set()

    def visit(value: Any, depth: int) -> None:
        value = inspect.unwrap(value) if callable(value) and not isinstance(value, type) else value
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        if id(value) in visited or depth > 4:
            return
        visited.add(id(value))
        if isinstance(value, type):
            for _, method in _methods(value):
                visit(method, depth)
            visit(vars(value).get("__init__"), depth)
            return
        if hasattr(value, "func") and not isinstance(value, types.FunctionType):
            visit(value.func, depth + 1)
            return
        code = getattr(value, "__code__", None)
        if code is None:
            return
        for text in (_annotation(a) for a in getattr(value, "__annotations__", {}).values()):
            note("torch" if "ensor" in text else "numpy" if "ndarray" in text or "NDArray" in text else "")
        names = source.code_names(code)
        scope = getattr(value, "__globals__", {})
        for name in names:
            target = scope.get(name)
            module = (
                target.__name__ if isinstance(target, types.ModuleType) else getattr(target, "__module__", "")
            )
            top = str(module or "").split(".")[0]
            if top in ("torch", "numpy"):
                note(top)
            elif callable(target):
                visit(target, depth + 1)
        for cell in getattr(value, "__closure__", None) or ():
            with contextlib.suppress(ValueError):
                if callable(cell.cell_contents):
                    visit(cell.cell_contents, depth + 1)

    def note(name: str) -> None:
        if name and name not in found:
            found.append(name)

    visit(home, 0)
    return found


DRAWS = re.compile(
    r"multinomial|categorical|choice|rand|sampl|gumbel|bernoulli|exponential|normal_|uniform|rng|Generator"
)
SINES = re.compile(r"(?<![a-z])(arc)?(sin|cos)(?![a-z])|sinus|cosine|sincos")
LARGEST = {"argmax", "nanargmax", "max", "topk", "argsort", "sort", "argpartition"}


def _facts_of_code(home: Any, name: str, own: frozenset[str]) -> dict[str, Any]:
    """``draws``, whether it may draw at random: not where it takes the largest, and mentions nothing that draws.

    ``sines``, whether it mentions a sine or cosine.
    ``constants``, the numbers of its modules that it reads; those of a class are among its settings.
    """
    home, mentioned, constants = _undecorated(home, name), set[str](), dict[str, Any]()
    with contextlib.suppress(ValueError):  # a wrapper may wrap itself
        for function in source.reached(home, own):
            code = function.__code__
            given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            mentioned |= {*source.code_names(code), *code.co_freevars, *given}
        if not isinstance(home, type):
            constants = {found[0].key: found[0].get() for found in settings.globals_of(home, own).values()}
    draws = not mentioned & LARGEST or any(map(DRAWS.search, mentioned))
    sines = any(SINES.search(word.lower()) for word in (*mentioned, name))
    return {"draws": draws, "sines": sines, "constants": constants}


def _file(home: Any) -> str:
    """The file in which an object is defined, empty if that cannot be told."""
    try:
        return inspect.getsourcefile(inspect.unwrap(home)) or ""
    except (TypeError, ValueError, OSError):  # a wrapper may wrap itself
        return ""


def _line(home: Any) -> int:
    """The line on which an object is defined, 0 if that cannot be told."""
    try:
        inner = inspect.unwrap(home) if callable(home) and not isinstance(home, type) else home
    except ValueError:
        inner = home
    code = getattr(inner, "__code__", None)
    if code is not None:
        return int(code.co_firstlineno)
    if isinstance(home, type):
        start = re.compile(rf"\s*class\s+{re.escape(home.__name__)}\b")
        for number, line in enumerate(_lines(home), 1):
            if start.match(line):
                return number
    return 0


def _lines(home: Any) -> list[str]:
    file = getattr(sys.modules.get(getattr(home, "__module__", "")), "__file__", None)
    return linecache.getlines(file) if isinstance(file, str) and file.endswith(".py") else []


def _file_words(home: Any) -> str:
    """What the author says at the top of the file."""
    said = getattr(sys.modules.get(getattr(home, "__module__", "")), "__doc__", None)
    comments = [line.lstrip("# ") for line in _lines(home)[:40] if line.startswith("#")]
    return "\n".join([*(line.rstrip() for line in comments), said if isinstance(said, str) else ""])[:MAX_DOC]


def _words(home: Any) -> str:
    """Docstrings and comments of an object: what its author says of it."""
    lines, first = _lines(home), _line(home)
    block: list[str] = []
    if lines and first:
        indent = len(lines[first - 1]) - len(lines[first - 1].lstrip())
        for line in lines[first - 1 : first + 400]:
            text = line.strip()
            begun = any(known.lstrip().startswith(("def ", "class ", "async ")) for known in block)
            inside = (
                len(line) - len(line.lstrip()) > indent or not text or text[0] in (")]" if begun else ")@]")
            )
            if len(block) > 1 and not inside and not text.startswith(("def ", "class ")):
                break
            if len(block) > 1 and not inside and not block[-1].lstrip().startswith("@"):
                break
            block.append(line)
    source = "".join(block)
    comments = re.findall(r"#.*", source)
    quoted = [
        text for groups in re.findall(r'"""(.*?)"""|\'\'\'(.*?)\'\'\'', source, re.DOTALL) for text in groups
    ]
    said = getattr(home, "__doc__", None)
    return "\n".join([*comments, *quoted, said if isinstance(said, str) else ""])[:MAX_DOC]

"""The Python that reproduces a failure with the candidate and torch or NumPy alone, from the Session's log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..candidates import wire
from ..candidates.session import Built, Call
from ..candidates.settings import GLOBAL
from .trial import Trial

MANY = 400


def readable_inputs(trial: Trial) -> dict[str, Any]:
    """The case's inputs in readable numbers; what is large is given by its shape."""
    shown: dict[str, Any] = {}
    for name, value in {**trial.inputs, **(trial.shown or {})}.items():
        if isinstance(value, np.ndarray):
            small = value.size <= MANY
            shown[name] = _numbers(value).tolist() if small else f"array of shape {list(value.shape)}"
        elif value is not None:
            shown[name] = value
    return shown


def _numbers(values: np.ndarray) -> np.ndarray:
    return np.round(values.astype(np.float64), 6) + 0.0 if values.dtype.kind == "f" else values


def snippet(trial: Trial) -> str:
    """Python for the last call that the claim made; empty where it would be too long to paste."""
    calls = trial.subject.last_calls
    if not calls:
        return ""
    call = calls[-1]
    first = len(calls) - 1
    while calls[first].follows and first:
        first -= 1
    chain = calls[first:]
    statements = _chained(trial, chain) if len(chain) > 1 else _statements(trial, call)
    lines = [*_imports(trial, chain), *trial.subject.prelude(call), *statements]
    text = "\n".join(lines)
    return text if len(text) < 6000 else ""


def _imports(trial: Trial, chain: Sequence[Call]) -> list[str]:
    target, call = trial.subject.session.target.wire, chain[-1]
    made = [
        call.built,
        *(b for c in chain for value in (*c.args, *c.kwargs.values()) for b in _objects(value)),
    ]
    names = list(dict.fromkeys(built.path.partition(":")[2].split(".")[0] for built in made))
    first = ", ".join(names)
    lines = []
    if target["kind"] == "file":
        path = Path(target["path"])
        lines.append(f"# run in the folder of {path.name}")
        if path.stem.isidentifier():
            lines.append(f"from {path.stem} import {first}")
        else:
            every = f"module = runpy.run_path({path.name!r})"
            lines += ["import runpy", every, *(f"{name} = module[{name!r}]" for name in names)]
    elif target["kind"] == "command":
        lines.append(f"# {first} is what the command provides")
    elif target["kind"] == "live":
        lines.append(f"# {first} is the object that was checked")
    else:
        module = call.built.path.partition(":")[0]
        if target["kind"] == "folder":
            lines.append(f"# run in the folder {Path(target['path']).name}")
        lines.append(f"from {module} import {first}")
    used = {container for c in chain for container in _containers(c)}
    if "torch" in used or trial.subject.framework == "torch":
        lines.insert(1 if lines and lines[0].startswith("#") else 0, "import torch")
    if "numpy" in used:
        lines.insert(1 if lines and lines[0].startswith("#") else 0, "import numpy as np")
    return [*lines, ""]


def _objects(value: Any) -> list[Built]:
    """Further objects of the candidate that an argument holds: a cache that it has a class for."""
    if isinstance(value, list | tuple):
        return [built for item in value for built in _objects(item)]
    return [value] if isinstance(value, Built) else []


def _containers(call: Call) -> set[str]:
    return {value.container for value in (*call.args, *call.kwargs.values()) if isinstance(value, wire.Array)}


def _statements(trial: Trial, call: Call) -> list[str]:
    lines = _construction(trial, call)
    target = "layer" if lines else call.built.path.partition(":")[2]
    args = []
    for n, value in enumerate(call.args):
        lines += _assign(f"arg{n}", value)
        args.append(f"arg{n}" if isinstance(value, wire.Array) else repr(value))
    named = []
    for key, value in call.kwargs.items():
        if isinstance(value, wire.Array):
            lines += _assign(key, value)
            named.append(f"{key}={key}")
        else:
            named.append(f"{key}={value!r}")
    method = f".{call.method}" if call.method and call.method != "__call__" else ""
    lines.append(f"print({target}{method}({', '.join([*args, *named])}))")
    return lines


def _construction(trial: Trial, call: Call) -> list[str]:
    """The lines that make ``layer``; none for a function."""
    if trial.subject.binding.entry["kind"] != "class":
        return []
    lines = ["torch.manual_seed(0)"] if trial.subject.framework == "torch" else []
    settings, given = _settings(trial, call.built)
    lines += settings
    lines.append(f"layer = {call.built.path.partition(':')[2]}({_arguments(call.built.args, given)})")
    if trial.subject.binding.entry["module_class"]:
        lines.append("layer.eval()" if not call.built.double else "layer.eval().double()")
    return [*lines, *trial.subject.prepared(call)]


def _settings(trial: Trial, built: Built) -> tuple[list[str], dict[str, Any]]:
    """The lines that set constants of the module and make configurations, and the arguments of the constructor."""
    _, _, name = built.path.partition(":")
    given = {k: v for k, v in built.kwargs.items() if "." not in k and not k.startswith(GLOBAL)}
    lines = [
        f"sys.modules[{name}.__module__].{key.removeprefix(GLOBAL)} = {value!r}"
        for key, value in built.kwargs.items()
        if key.startswith(GLOBAL)
    ]
    if lines:
        lines.insert(0, "import sys")
    for parameter, how in trial.subject.binding.entry.get("configs", {}).items():
        start = f"{parameter}."
        values = {k.removeprefix(start): v for k, v in built.kwargs.items() if k.startswith(start)}
        if not how["name"]:  # with nothing to start from, what nobody sets has to be there as well
            rest = [p for p in trial.subject.binding.entry.get("init") or () if p["name"].startswith(start)]
            values = {p["name"].removeprefix(start): p["default"] for p in rest} | values
        fields = ", ".join(f"{k}={v!r}" for k, v in values.items())
        source = how["name"] and f"sys.modules[{name}.__module__].{how['name']}"
        if how["kind"] == "part":
            given[parameter] = Name(_part(how, values, f"sys.modules[{name}.__module__]."))
            lines += ["import sys"] if "import sys" not in lines else []
            continue
        if how["kind"] == "class":
            text = f"{source}({fields})"
        elif how["kind"] == "bare":
            text = f"{source}()"
        elif how["kind"] == "value":
            text = f"copy.copy({source})"
        elif how["kind"] == "dict":
            text = f"{{**{source}, **dict({fields})}}" if source else f"dict({fields})"
        else:
            text = f"types.SimpleNamespace({fields})"
        imports = [m for m in ("sys", "copy", "types") if f"{m}." in text]
        lines += [f"import {', '.join(imports)}"] if imports and not lines else []
        lines.append(f"{parameter} = {text}")
        lines += [f"vars({parameter}).update({fields})"] if how["kind"] in ("bare", "value") else []
        given[parameter] = Name(parameter)
    return lines, given


def _part(how: Mapping[str, Any], values: Mapping[str, Any], module: str) -> str:
    """The expression that makes a submodule, with those that it takes itself."""
    fields = {k: repr(v) for k, v in values.items() if "." not in k and not (how["several"] and k == "len")}
    for name, inner in how["parts"].items():
        start = f"{name}."
        within = {k.removeprefix(start): v for k, v in values.items() if k.startswith(start)}
        fields[name] = _part(inner, within, module)
    made = f"{module}{how['name']}({', '.join(f'{k}={v}' for k, v in fields.items())})"
    return f"torch.nn.ModuleList([{made} for _ in range({values.get('len', 2)})])" if how["several"] else made


class Name(str):
    """Shown without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _chained(trial: Trial, calls: tuple[Call, ...]) -> list[str]:
    """Calls of one object that continue each other: each result has a name, and later calls use it."""
    built = calls[-1].built
    lines = [*_construction(trial, calls[-1])]
    texts: dict[tuple[int, str], str] = {}
    for number, call in enumerate(calls):
        given = []
        for key, value in [*((f"arg{n}", a) for n, a in enumerate(call.args)), *call.kwargs.items()]:
            text = repr(value)
            if isinstance(value, wire.Array):
                text = _assign("", value)[0].removeprefix(" = ")
            elif isinstance(value, wire.Earlier):
                path = "".join(f"[{step!r}]" for step in value.path)
                before = number - value.back
                text = f"{texts[before, value.argument] if value.argument else f'result{before}'}{path}"
            elif _objects(value):
                made = [
                    f"{b.path.partition(':')[2]}({_arguments(b.args, b.kwargs)})" for b in _objects(value)
                ]
                text = f"[{', '.join(made)}]" if isinstance(value, list) else made[0]
            if not isinstance(value, wire.Array | wire.Earlier | bool | int | float | None):
                lines.append(f"{key}{number} = {text}")  # what is filled in place needs a name
                text = f"{key}{number}"
            texts[number, key] = text
            given.append(text if key.startswith("arg") else f"{key}={text}")
        name = "layer" if call.built == built else call.built.path.partition(":")[2]
        method = f".{call.method}" if call.method and call.method != "__call__" else ""
        lines.append(f"result{number} = {name}{method}({', '.join(given)})")
    return [*lines, f"print(result{len(calls) - 1})"]


def _arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    return ", ".join([*map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())])


def _assign(name: str, value: Any) -> list[str]:
    if not isinstance(value, wire.Array):
        return []
    numbers = _literal(value.values)
    if value.container == "torch":
        return [f"{name} = torch.tensor({numbers}, dtype=torch.{value.dtype})".replace("inf", "float('inf')")]
    if value.container == "numpy":
        return [
            f"{name} = np.array({numbers}, dtype={'bool' if value.dtype == 'bool' else 'np.' + value.dtype})".replace(
                "inf", "np.inf"
            )
        ]
    return [f"{name} = {numbers}"]


def _literal(values: np.ndarray) -> str:
    if values.size > MANY * 4:
        return f"... (an array of shape {list(values.shape)})"
    if values.size and not values.any() and values.ndim > 1 and values.size > 24:
        return _zeros(values.shape)
    return repr(_numbers(values).tolist()).replace("nan", "float('nan')")


def _zeros(shape: tuple[int, ...]) -> str:
    text = "0.0"
    for n in reversed(shape):
        text = f"[{text}] * {n}"
    return text

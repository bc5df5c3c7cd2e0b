"""Turns what a person typed into a target: a file, folder, module, ``module:object``, built-in or mutant."""

from __future__ import annotations

import importlib.util
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ...reference.mutants import Mutant, load_mutants
from .errors import ConventionError, TargetError

BUILT_IN: Mapping[str, tuple[str, str]] = {
    "baseline": ("triu.reference.baseline", "the PyTorch reference that comes with triu"),
    "numpy": ("triu.reference.plain", "the second opinion: NumPy with plain loops"),
    "torch": (
        "triu.reference.pytorch",
        "PyTorch itself: nn.MultiheadAttention and scaled_dot_product_attention",
    ),
}


@dataclass(frozen=True)
class Declarations:
    """What a candidate's author declares: which object fills a role, and its conventions.

    ``roles`` maps a role to names of objects; ``conventions`` maps a role or an object's name to
    convention → value; ``arguments`` maps likewise canonical argument → the candidate's parameter.
    """

    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    conventions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    arguments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    source: str = ""
    of_assignment: bool = False  # not its author's: it may lack what is named here


@dataclass(frozen=True)
class Target:
    """A located candidate.

    Attributes:
        text: what was typed.
        wire: the same as plain data for the worker.
        only: with ``module:object`` the one object that is meant.
        declarations: from ``triu.toml`` beside it, ``[tool.triu]``, or ``--conventions``.
    """

    text: str
    wire: Mapping[str, Any]
    only: str = ""
    declarations: Declarations = Declarations()


def locate(text: str, conventions: str | Path | None = None) -> Target:
    """Find a target.

    Raises:
        TargetError: there is no such file, folder, module or built-in candidate.
        ConventionError: the declarations beside it, or in ``conventions``, cannot be read.
    """
    if not text.strip():
        raise TargetError(
            f"{text}: no target; expected a file, a folder, a module, module:object or a built-in name"
        )
    built_in = BUILT_IN.get(text)
    if built_in:
        declared = read_declarations(conventions) if conventions else Declarations()
        return Target(text, {"kind": "module", "name": built_in[0], "cwd": ""}, "", declared)
    if text.startswith("mutant:"):
        mutant = _mutant(text)
        own = {mutant.objects[0]: mutant.conventions} if mutant.conventions else {}
        declared = read_declarations(conventions) if conventions else Declarations(conventions=own)
        wire = {"kind": "module", "name": mutant.module, "cwd": ""}
        return Target(text, wire, "", declared)
    name, _, only = text.partition(":") if not Path(text).exists() else (text, "", "")
    path = Path(name)
    if path.is_file():
        if path.suffix != ".py":
            raise TargetError(f"{text}: is not a Python file; a target is a .py file, a folder, or a module")
        wire, beside = {"kind": "file", "path": str(path.resolve())}, path.resolve().parent
    elif path.is_dir():
        if not any(path.rglob("*.py")):
            raise TargetError(f"{text}: the folder holds no Python file")
        wire, beside = {"kind": "folder", "path": str(path.resolve())}, path.resolve()
    elif path.suffix == ".py" or "/" in name or "\\" in name:
        raise TargetError(f"{text}: no such file or folder")
    elif all(part.isidentifier() for part in name.split(".")):
        if not _module_exists(name):
            near = get_close_matches(name, BUILT_IN, 1)
            guess = f"; did you mean {near[0]}?" if near else ""
            raise TargetError(
                f"{text}: no file, folder or importable module of that name{guess} "
                f"(built-in candidates: {', '.join(BUILT_IN)})"
            )
        wire, beside = {"kind": "module", "name": name, "cwd": str(Path.cwd())}, None
    else:
        raise TargetError(f"{text}: is neither a file, a folder, a module nor a built-in candidate")
    if conventions:
        declared = read_declarations(conventions)
    else:
        declared = _declarations_beside(beside) if beside else Declarations()
    return Target(text, wire, only, declared)


def command_target(command: str, conventions: str | Path | None = None) -> Target:
    """The target that is a program speaking the protocol.  Raises ConventionError as :func:`locate` does."""
    declared = read_declarations(conventions) if conventions else Declarations()
    return Target(command, {"kind": "command"}, "", declared)


def _mutant(text: str) -> Mutant:
    """The mutant that ``mutant:ID`` means."""
    mutants, name = load_mutants(), text.removeprefix("mutant:")
    if name not in mutants:
        near = get_close_matches(name, mutants, 1)
        guess = f"; did you mean {near[0]}?" if near else "."
        raise TargetError(f"{text}: there is no such mutant{guess} `triu mutants --list` lists them")
    return mutants[name]


def _module_exists(name: str) -> bool:
    """Whether the top-level package can be found, without importing any of it."""
    import sys

    top = name.split(".")[0]
    if top in sys.modules:
        return True
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False
    finally:
        sys.path.pop(0)


def _declarations_beside(folder: Path) -> Declarations:
    own = folder / "triu.toml"
    if own.is_file():
        return read_declarations(own)
    project = folder / "pyproject.toml"
    if project.is_file():
        try:
            table = tomllib.loads(project.read_text("utf-8")).get("tool", {}).get("triu")
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConventionError(f"{project}: is not TOML: {error}") from None
        if table is not None:
            return _declarations(table, f"{project} [tool.triu]")
    return Declarations()


def read_declarations(path: str | Path) -> Declarations:
    """Read a conventions file; its words are checked against the roles when the candidate is bound."""
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConventionError(f"{path}: no such conventions file") from None
    except OSError as error:
        raise ConventionError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConventionError(f"{path}: is not TOML: {error}") from None
    if path.name == "pyproject.toml":
        table = table.get("tool", {}).get("triu", {})
    return _declarations(table, str(path))


def _declarations(table: Any, source: str) -> Declarations:
    known = ("roles", "conventions", "arguments")
    if not isinstance(table, dict):
        raise ConventionError(f"{source}: expected tables {', '.join(f'[{k}]' for k in known)}")
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, 1)
            guess = f"; did you mean [{near[0]}]?" if near else ""
            raise ConventionError(f"{source}: unknown key {key!r}{guess} (known: {', '.join(known)})")
    roles = {}
    for role, names in _table(table, "roles", source).items():
        names = [names] if isinstance(names, str) else names
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise ConventionError(
                f"{source}: roles.{role}: found {names!r}, expected a name or a list of names"
            )
        roles[role] = tuple(names)
    groups: dict[str, dict[str, dict[str, str]]] = {}
    for group in ("conventions", "arguments"):
        groups[group] = {}
        for subject, entries in _table(table, group, source).items():
            if not (isinstance(entries, dict) and all(isinstance(v, str) for v in entries.values())):
                raise ConventionError(
                    f"{source}: {group}.{subject}: found {entries!r}, expected a table of strings"
                )
            groups[group][subject] = entries
    return Declarations(roles, groups["conventions"], groups["arguments"], source)


def _table(table: Mapping[str, Any], name: str, source: str) -> Mapping[str, Any]:
    value = table.get(name, {})
    if not isinstance(value, dict):
        raise ConventionError(f"{source}: {name}: found {value!r}, expected a table [{name}]")
    return value


def version_of(target: Target) -> str:
    """What tells one state of a candidate from another: a digest of its files, or its distribution and version."""
    import hashlib
    from importlib.metadata import packages_distributions, version

    if "path" in target.wire:
        path, digest = Path(target.wire["path"]), hashlib.sha256()
        try:
            for file in [path] if path.is_file() else sorted(f for f in path.rglob("*.py") if f.is_file()):
                name = file.relative_to(path.parent).as_posix()
                digest.update(os.fsencode(name) + b"\0" + file.read_bytes())
        except OSError:  # it was taken away, or may not be read: a version is not worth a verdict
            return ""
        return f"sha256 {digest.hexdigest()[:12]}"
    if target.wire["kind"] == "module" and target.wire["cwd"]:
        names = packages_distributions().get(target.wire["name"].split(".")[0], [])
        return ", ".join(f"{name} {version(name)}" for name in dict.fromkeys(names))
    return ""


def mentions_torch(target: Target) -> bool:
    """Whether the candidate's files speak of torch: then its worker may as well import it at once."""
    if "path" not in target.wire:
        return target.text != "numpy"
    path = Path(target.wire["path"])
    for file in [path] if path.is_file() else path.rglob("*.py"):
        try:
            if "torch" in file.read_text("utf-8", "replace"):
                return True
        except OSError:
            continue
    return False

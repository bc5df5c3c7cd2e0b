"""Runs on the candidate's side: imports a file, a folder or a module, whatever it does meanwhile.

Standard library only, so that a NumPy candidate never pays for torch.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import cells

SKIPPED_FILES = ("test_*.py", "*_test.py", "conftest.py", "setup.py", "noxfile.py")


class ImportFailed(Exception):
    """Importing the candidate raised; ``cause`` is what it raised."""

    def __init__(self, name: str, cause: BaseException) -> None:
        super().__init__(name)
        self.name, self.cause = name, cause


def open_target(target: Mapping[str, Any]) -> tuple[dict[str, types.ModuleType], list[ImportFailed]]:
    """Import a target; returns its modules by name, and the files of a folder and cells of notebooks that failed.

    Raises ImportFailed when nothing of it could be imported.
    """
    kind = target["kind"]
    if kind == "file":
        module = _import_file(Path(target["path"]))
        return {module.__name__: module}, []
    if kind == "folder":
        return _import_folder(Path(target["path"]))
    if kind == "module":
        sys.path.insert(0, target.get("cwd", ""))
        try:
            module = importlib.import_module(target["name"])
        except BaseException as error:
            raise ImportFailed(target["name"], error) from error
        return {module.__name__: module}, []
    raise ValueError(f"unknown kind of target {kind!r}")


def _import_file(path: Path) -> types.ModuleType:
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = path.stem
    if not name.isidentifier() or name in sys.modules or name in sys.stdlib_module_names or _shadows(name):
        name = "candidate_" + "".join(c if c.isalnum() else "_" for c in path.stem)
    return _load(name, path, None)


def _shadows(name: str) -> bool:
    """Whether a file of that name would hide a library that the candidate itself may need."""
    return name in {"torch", "numpy", "triu", "scipy", "math", "tensorflow", "jax", "einops"}


def _load(name: str, path: Path, search: list[str] | None) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=search)
    if spec is None or spec.loader is None:
        raise ImportFailed(path.name, ImportError(f"{path.name} is not a Python file"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(name, None)
        raise ImportFailed(path.name, error) from error
    return module


def _import_folder(folder: Path) -> tuple[dict[str, types.ModuleType], list[ImportFailed]]:
    modules: dict[str, types.ModuleType] = {}
    failed: list[ImportFailed] = []
    package = (folder / "__init__.py").exists()
    sys.path.insert(0, str(folder.parent if package else folder))
    for path in sorted(folder.rglob("*.py")):
        relative = path.relative_to(folder)
        if any(part.startswith((".", "_")) and part != "__init__.py" for part in relative.parts):
            continue
        if any(path.match(pattern) for pattern in SKIPPED_FILES) or "__pycache__" in relative.parts:
            continue
        if not package and len(relative.parts) > 1 and not (path.parent / "__init__.py").exists():
            continue
        parts = list(relative.with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        name = ".".join([folder.name, *parts] if package else parts)
        if not name:
            continue
        try:
            if all(part.isidentifier() for part in name.split(".")) and not _taken(name, path):
                try:
                    modules[name] = importlib.import_module(name)
                except BaseException as error:
                    raise ImportFailed(str(relative), error) from error
            else:
                module = _import_file(path)
                modules[module.__name__] = module
        except ImportFailed as error:
            failed.append(error)
    if not modules:
        if failed:
            raise failed[0]
        raise ImportFailed(folder.name, ImportError("the folder holds no Python file"))
    failed += [ImportFailed(name, error) for name, error in cells.FAILED]
    cells.FAILED.clear()
    return modules, failed


def _taken(name: str, path: Path) -> bool:
    top = name.split(".")[0]
    if top in sys.stdlib_module_names or _shadows(top):
        return True
    known = sys.modules.get(top)
    where = getattr(known, "__file__", None)
    return known is not None and (where is None or path.parent not in Path(where).parents)


def own_modules(target: Mapping[str, Any], modules: Mapping[str, types.ModuleType]) -> set[str]:
    """Names of the modules whose definitions count as the candidate's own."""
    if target["kind"] == "module":
        root = target["name"]
        return {name for name in sys.modules if name == root or name.startswith(root + ".")}
    folder = Path(target["path"]) if target["kind"] == "folder" else Path(target["path"]).parent
    folder, own = folder.resolve(), set(modules)
    for name, module in list(sys.modules.items()):
        where = getattr(module, "__file__", None)
        if isinstance(where, str) and not name.startswith("triu.") and "site-packages" not in where:
            with contextlib.suppress(OSError, ValueError):
                if Path(where).resolve().is_relative_to(folder):
                    own.add(name)
    return own

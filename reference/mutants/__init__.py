"""Mutants: the reference with one known bug each, and the misconception behind it.

A mutant is data: a row of one of the TOML files here, which says what to replace in the source of one
definition of the baseline.  It becomes a package of its own, ``triu.reference.mutants.NAME``, in which all other
source is the baseline's; it is made in memory when it is imported.  Nothing is patched.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import sys
import tomllib
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BASELINE = HERE.parent / "baseline"


class MutantError(ValueError):
    """A row of a mutants file is wrong; the message says which, and what is expected."""


@dataclass(frozen=True)
class Mutant:
    """One known bug.

    Attributes:
        id: for people and for ``triu check mutant:ID``.
        misconception: what its author believes or overlooked, in a sentence for students.
        correction: what to do instead.
        claim: the id of the claim whose business it is.
        file, within: the baseline's file and the definition in it that is changed.
        changes: pairs of text, what stands there and what stands there instead.
        objects: names of the baseline's objects that show the bug, the first one above all.
        differs: an expression over the module's names that comes out otherwise than in the baseline.
        conventions: what is declared of the first object, where the claim concerns only what is declared.
    """

    id: str
    misconception: str
    correction: str
    claim: str
    file: str
    within: str
    changes: tuple[tuple[str, str], ...]
    objects: tuple[str, ...]
    differs: str
    conventions: Mapping[str, str] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """The name under which it is imported."""
        return f"{__name__}.{self.id.replace('-', '_')}"

    def load(self) -> types.ModuleType:
        """The package; its attributes are ``objects``."""
        return importlib.import_module(self.module)

    def begin_anew(self) -> None:
        """Forget what its functions keep from call to call, so that one use does not show in the next."""
        for name in self.objects:
            value = getattr(self.load(), name)
            kept = vars(value) if isinstance(value, types.FunctionType) else {}
            for key in [key for key in kept if not str(key).startswith("__")]:
                del kept[key]

    def source(self) -> str:
        """The whole text of the changed file.  Raises MutantError if a change has no place, or several."""
        text, body = _baseline(self.file)
        start, stop = _place(body, self.within, self.id)
        lines = text.splitlines(keepends=True)
        part = "".join(lines[start:stop])
        for old, new in self.changes:
            if part.count(old) != 1:
                raise MutantError(
                    f"mutant {self.id}: {old!r} occurs {part.count(old)} times in {self.within} of "
                    f"baseline/{self.file}.py, expected once"
                )
            part = part.replace(old, new)
        return "".join([*lines[:start], part, *lines[stop:]])

    def diff(self) -> str:
        """What is changed, as a unified diff without a header."""
        from difflib import unified_diff

        before = _baseline(self.file)[0].splitlines()
        lines = list(unified_diff(before, self.source().splitlines(), lineterm="", n=1))[2:]
        return "\n".join(line for line in lines if not line.startswith("@@"))


FIELDS = {"id", "misconception", "correction", "claim", "file", "within", "changes", "objects", "differs"}


@lru_cache(maxsize=1)
def load_mutants() -> Mapping[str, Mutant]:
    """All mutants by id, in the order of the files.  Raises MutantError for a row that cannot be used."""
    found: dict[str, Mutant] = {}
    for path in sorted(HERE.glob("*.toml")):
        for row in tomllib.loads(path.read_text("utf-8"))["mutant"]:
            mutant = _mutant(row, path.name)
            if mutant.id in found:
                raise MutantError(f"{path.name}: there are two mutants {mutant.id!r}")
            found[mutant.id] = mutant
    return found


@lru_cache(maxsize=1)
def load_kills() -> Mapping[str, frozenset[str]]:
    """The claims that break on each mutant, each judged by itself, as ``make kills`` found them."""
    table = json.loads((HERE / "kills.json").read_text("utf-8"))
    return {mutant: frozenset(found["shown"] + found["behind"]) for mutant, found in table.items()}


@lru_cache(maxsize=1)
def load_shown() -> Mapping[str, frozenset[str]]:
    """The claims that a report shows as broken on each mutant: those that rest on broken ones are not tried."""
    table = json.loads((HERE / "kills.json").read_text("utf-8"))
    return {mutant: frozenset(found["shown"]) for mutant, found in table.items()}


def _mutant(row: Mapping[str, Any], where: str) -> Mutant:
    name = row.get("id", "?")
    wrong = (row.keys() ^ FIELDS) - {"within", "conventions"}
    if wrong:
        raise MutantError(f"{where}: mutant {name}: missing or unknown: {', '.join(sorted(wrong))}")
    if not str(name).replace("-", "_").isidentifier() or str(name).lower() != name:
        raise MutantError(f"{where}: mutant {name!r}: an id is of small letters, digits and hyphens")
    objects = tuple(row["objects"])
    changes = tuple((old, new) for old, new in row["changes"])
    within = row.get("within", objects[0])
    texts = {key: " ".join(row[key].split()) for key in ("misconception", "correction")}
    return Mutant(
        **texts,
        id=name,
        claim=row["claim"],
        file=row["file"],
        within=within,
        changes=changes,
        objects=objects,
        differs=row["differs"],
        conventions=row.get("conventions", {}),
    )


@lru_cache(maxsize=16)
def _baseline(file: str) -> tuple[str, Sequence[ast.stmt]]:
    """A file of the baseline, as text and parsed."""
    text = (BASELINE / f"{file}.py").read_text("utf-8")
    return text, ast.parse(text).body


def _place(body: Sequence[ast.stmt], within: str, who: str) -> tuple[int, int]:
    """The lines of a top-level definition, or of a method as ``Class.method``."""
    node: Any = None
    for part in within.split("."):
        node = next((n for n in body if getattr(n, "name", None) == part), None)
        if node is None:
            raise MutantError(f"mutant {who}: the baseline's file has no {within}")
        body = node.body
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return first - 1, node.end_lineno


class _Loader(InspectLoader):
    """Makes the modules of a mutant's package from the baseline's source."""

    def __init__(self, mutant: Mutant, part: str) -> None:
        self.mutant, self.part = mutant, part

    def is_package(self, fullname: str) -> bool:
        return not self.part

    def get_source(self, fullname: str) -> str:
        if not self.part:
            homes = _homes()
            words = f'"""The baseline with one bug: {self.mutant.id}."""\n\n'
            return words + "".join(f"from .{homes[name]} import {name}\n" for name in self.mutant.objects)
        if self.part == self.mutant.file:
            return self.mutant.source()
        return _baseline(self.part)[0]

    def get_code(self, fullname: str) -> Any:
        name = self.part or "__init__"
        return compile(self.get_source(fullname), str(HERE / self.mutant.id / f"{name}.py"), "exec")


class _Finder(MetaPathFinder):
    """Finds ``triu.reference.mutants.NAME`` and what is below."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not fullname.startswith(__name__ + "."):
            return None
        name, _, part = fullname.removeprefix(__name__ + ".").partition(".")
        mutant = next((m for m in load_mutants().values() if m.module == f"{__name__}.{name}"), None)
        if mutant is None or (part and not (BASELINE / f"{part}.py").is_file()):
            return None
        spec = importlib.util.spec_from_loader(fullname, _Loader(mutant, part), is_package=not part)
        if spec is not None:
            spec.origin, spec.has_location = str(HERE / mutant.id / f"{part or '__init__'}.py"), True
        return spec


@lru_cache(maxsize=1)
def _homes() -> Mapping[str, str]:
    """In which file of the baseline each name is defined."""
    return {
        node.name: path.stem
        for path in sorted(BASELINE.glob("*.py"))
        for node in _baseline(path.stem)[1]
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


if not any(type(finder).__name__ == "_Finder" for finder in sys.meta_path):
    sys.meta_path.append(_Finder())

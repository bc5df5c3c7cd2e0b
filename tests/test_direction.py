"""Imports go one way: spec and reference import nothing of ours, reports imports spec, conformance all three."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import triu.spec

ROOT = Path(triu.spec.__file__).parents[1]
ALLOWED = {
    "spec": {"spec"},
    "reference": {"reference"},
    "reports": {"reports", "spec"},
    "conformance": {"conformance", "spec", "reference", "reports"},
}
FILES = [path for package in ALLOWED for path in sorted((ROOT / package).rglob("*.py"))]


def absolute(node, module):
    """The modules that an import statement names, relative ones resolved against the module's package."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not node.level:
        return [node.module]
    home = module[: len(module) - node.level]
    if node.module:
        return [".".join([*home, node.module])]
    return [".".join([*home, alias.name]) for alias in node.names]


def imports_of(source, module):
    """Names of all modules that a source imports, at its top or within its functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from absolute(node, module)


def ours(source, module):
    """The packages of ours that a source imports."""
    found = set()
    for name in imports_of(source, module):
        top, *rest = name.split(".")
        if top == "triu" and rest:
            found.add(rest[0])
        elif top in ALLOWED:  # a package of ours by its bare name would be a student's own
            found.add(f"the top-level module {top}")
    return found


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ("triu", *parts)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_its_package_may(path):
    module = module_of(path)
    assert ours(path.read_text("utf-8"), module) <= ALLOWED[module[1]]


def test_every_package_has_files():
    assert {module_of(path)[1] for path in FILES} == set(ALLOWED)


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("import triu.reports", {"reports"}),
        ("from triu.reports import to_json", {"reports"}),
        ("from ..reports import to_json", {"reports"}),
        ("from .. import reports", {"reports"}),
        ("from ..reports.text import headline", {"reports"}),
        ("def f():\n    from ..conformance import check", {"conformance"}),
        ("import reference", {"the top-level module reference"}),
        ("from .formula import parse", {"spec"}),
        ("import torch", set()),
    ],
)
def test_no_way_of_importing_goes_unseen(statement, found):
    assert ours(statement, ("triu", "spec", "loader")) == found


def test_an_import_from_within_a_subpackage_is_resolved():
    assert ours("from ...spec import Claim", ("triu", "conformance", "engine", "run")) == {"spec"}

"""The documents stay true: the README's report is what is printed, every convention is described."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from triu.spec import load_spec

ROOT = Path(__file__).parents[1]


def test_the_report_in_the_readme_is_the_one_that_is_printed():
    command = [sys.executable, "-m", "triu.conformance", "check", "examples/softmax_then_zero.py"]
    environment = {**os.environ, "COLUMNS": "100"}
    printed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment).stdout
    readme = (ROOT / "README.md").read_text("utf-8")
    block = readme.split("prints this, all of it:\n\n", 1)[1].split("\n\nThe exit status is 1.", 1)[0]
    shown = [line.removeprefix("    ").rstrip() for line in block.split("\n")]
    assert shown == [line.rstrip() for line in printed.rstrip().split("\n")]


@pytest.mark.parametrize("role", load_spec().roles.values(), ids=lambda role: role.id)
def test_every_convention_is_described_with_its_values_and_what_they_mean(role):
    text = re.sub(r"\s+", " ", (ROOT / "docs" / "conventions.md").read_text("utf-8"))
    for convention in role.conventions:
        assert f"`{convention.name}`" in text
        for value, meaning in convention.values.items():
            assert f"`{value}`" in text
            assert meaning in text, f"{role.id}.{convention.name} = {value}"


def test_the_documents_name_no_file_that_is_not_there():
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        text = re.sub(r"^(```+)\w*\n.*?^\1$", "", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        for link in re.findall(r"\]\(([^)#:]+)\)", re.sub(r"`[^`\n]+`|\\.", "", text)):
            assert (document.parent / link).exists(), f"{document.name}: {link}"


def test_every_dependency_is_explained():
    text = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for name in re.findall(r'^    "([a-z-]+)[><=]', project, re.MULTILINE):
        assert f"`{name}`" in text

"""TOML files of the spec: read, held to a JSON Schema, and how what is wrong with one is told."""

from __future__ import annotations

import json
import tomllib
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class SpecError(ValueError):
    """A spec file is wrong; the message says where, what was found and what is expected."""


def file_name(path: Path) -> str:
    """How a file is named to people: the built-in ones by their place in the package."""
    return f"spec/{path.relative_to(HERE)}" if path.is_relative_to(HERE) else str(path)


def read_toml(path: Path, purpose: str) -> dict[str, Any]:
    """What a TOML file holds.

    Raises:
        SpecError: it is missing (``purpose`` says what is taken instead), cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file; {purpose}") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{file_name(path)}: is not TOML: {error}") from None


def schema_error(document: Any, schema: Path) -> Any:
    """The error of a document under a JSON Schema that says most; None where there is none."""
    validator = _validator(schema)
    if validator.is_valid(document):
        return None
    from jsonschema.exceptions import best_match

    return best_match(validator.iter_errors(document))


@cache
def _validator(schema: Path) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(schema.read_text("utf-8")))


def explain(error: Any, skip: int) -> str:
    """A schema error as a sentence: which field (below the first ``skip`` steps to it), found, expected."""
    rest = list(error.absolute_path)[skip:]
    prefix = f"field {'.'.join(map(str, rest))}: " if rest else ""
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = sorted(error.schema.get("properties", {}))
        unknown = sorted(set(error.instance) - set(known))
        near = get_close_matches(unknown[0], known, 1) if unknown else []
        guess = f"; did you mean {near[0]}?" if near else ""
        return f"{prefix}unknown field {', '.join(unknown)}{guess} (known: {', '.join(known)})"
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return f"{prefix}missing field {', '.join(missing)}"
    expected = {
        "enum": lambda: "one of " + ", ".join(map(str, error.validator_value)),
        "type": lambda: f"a value of type {error.validator_value}",
        "pattern": lambda: f"text that matches {error.validator_value}",
        "minItems": lambda: "at least one item",
    }.get(error.validator, lambda: error.message)()
    found = json.dumps(error.instance, default=str)
    return f"{prefix}found {found[:120]}, expected {expected}"

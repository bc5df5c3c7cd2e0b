"""Pages of HTML: self-contained, readable without JavaScript, and nothing in them that a candidate wrote is run."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "templates"


def page(template: str, *, script: bool = False, **context: Any) -> str:
    """A template with its values, all text escaped.

    The page may load nothing and run nothing, but for our own script where there is one, named by its hash.
    """
    code = _script() if script else ""
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    allowed = f"; script-src 'sha256-{digest}'" if script else ""
    return _environment().get_template(template).render(**context, script=code, script_policy=allowed)


@cache
def _script() -> str:
    return (FOLDER / "filter.js").read_text("utf-8").strip()


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # only pages need it

    return Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

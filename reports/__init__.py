"""Renders reports: for a terminal, as a page, as Markdown, as JSON."""

from .claims import claim_text, claims_text
from .html import notebook_html, to_html
from .json_report import from_json, to_json
from .markdown import to_markdown
from .text import to_text
from .writing import write_whole

__all__ = [
    "claim_text",
    "claims_text",
    "from_json",
    "notebook_html",
    "to_html",
    "to_json",
    "to_markdown",
    "to_text",
    "write_whole",
]

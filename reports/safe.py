"""Strings that untrusted people wrote, made harmless for a terminal and for Markdown."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

_INLINE = re.compile(r"([\\`*\[\]<>|~&#]|(?<!\w)_|_(?!\w))")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~&])")


def clean(text: Any, limit: int = 2000) -> str:
    """Without control characters, escape sequences and marks that reorder text; newlines become spaces."""
    kept = []
    for character in str(text)[:limit]:
        category = unicodedata.category(character)
        if character in "\n\t\r":
            kept.append(" ")
        elif category in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
            kept.append(f"\\x{ord(character):02x}")
        else:
            kept.append(character)
    return "".join(kept)


def clean_lines(text: str, limit: int = 8000) -> str:
    """The same, line by line."""
    return "\n".join(clean(line) for line in text[:limit].split("\n"))


def markdown(text: Any) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _MARKDOWN.sub(r"\\\1", clean(text))


def prose(text: str) -> str:
    """Text within a line of Markdown, readable in its source too: only what would be markup there is escaped."""
    return _INLINE.sub(r"\\\1", clean(text))


def code_span(text: str) -> str:
    """Text in a span of code, within a table too."""
    told = clean(text, 300).strip().replace("|", "\\|")
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", told)), default=0))
    return f"{ticks} {told} {ticks}" if "`" in told else f"`{told}`"

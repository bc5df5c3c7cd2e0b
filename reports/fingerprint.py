"""By what a failure is known again: the same over seeds, sizes of the case, numbers and machines."""

from __future__ import annotations

import hashlib
import re

from ..spec import Verdict
from .safe import clean

LENGTH = 160  # of a sentence; what an exception tells further on may be cut short
_PLACE = r" \([^()]*, line \d+.*"  # in the code, which moves, with what stands there

# What one failure need not have in common with itself in another run, in turn.
_PASSING = (
    (r"^not deterministic: .*", "not deterministic"),  # chance decides in what it shows
    (r"(?<!\w)('[^']*'|\"[^\"]*\"|`[^`]*`)(?!\w)", "…"),  # quoted values
    (r"0x[0-9a-fA-F]+", "#"),  # addresses
    (r"\([\d\s,.+-]*\)", "#"),  # shapes
    (r"\b(nan|inf)\b", "#"),
    (r"[-+]?\d+(\.\d*)?(e[-+]?\d+)?|##+", "#"),
    (r"#((, | and |, and | or )#)+", "#"),  # 1, 2 and 5
    (r"# (\w+)s\b", r"# \1"),  # 1 token, 2 tokens
)


def sentence(verdict: Verdict) -> str:
    """What happened, as the report says it; empty for a claim that passed."""
    return verdict.failure.what if verdict.failure else verdict.reason


def fingerprint(verdict: Verdict) -> str:
    """Twelve hex digits for claim, object, outcome, sentence and likely mistake."""
    likely = verdict.failure.likely if verdict.failure else None
    said = without_numbers(sentence(verdict))
    parts = (
        clean(verdict.claim),
        clean(verdict.object),
        verdict.verdict,
        said,
        likely.mutant if likely else "",
    )
    return hashlib.sha256("\n".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:12]


def without_numbers(text: str) -> str:
    """A sentence without numbers, lists, quoted values and places."""
    words = re.sub(_PLACE, "", clean(text)).split()
    text = " ".join("…" if "/" in word or "\\" in word else word for word in words)  # paths
    while text != (text := re.sub(r"\[[^\[\]]*\]", "#", text)):  # lists within lists
        pass
    for found, instead in _PASSING:
        text = re.sub(found, instead, text)
    return re.sub(r"\[[^\]]*$", "#", text)[:LENGTH]  # a long message is cut, maybe within a list

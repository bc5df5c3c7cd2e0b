"""What authors write of their masks: ``True = blocked``, ``1 for real tokens``, ``mask: 0 -> hidden``.

A statement counts for the parameters that its sentence names, or, where it names none, for those of which
nothing else is said.  Statements that contradict each other say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_STATEMENT = re.compile(
    r"(?P<value>\bTrue(?:\s*/\s*1)?\b|\bFalse\b|(?<![\w.=(,-])[01]\b|\bnon-?zero\b|\bones?\b)\s*"
    r"(?:=+>?|:|->|→|means?|marks?|is|are|where|for|at|on|at the)\s*(?P<rest>[^.;,\n]{1,60})",
    re.IGNORECASE,
)
_NOT = re.compile(r"\b(not|never|no|n't|cannot)\b", re.IGNORECASE)
_BLOCK = re.compile(
    r"block|masked|mask out|ignor|forbid|hid|\bpad|disallow|future|exclu|remov|drop|invisible|prohibit",
    re.IGNORECASE,
)
_ALLOW = re.compile(
    r"allow|visib|keep|kept|attend|\bsee\b|seen|look|\breal\b|permit|take part|valid|\bwords?\b|past|used",
    re.IGNORECASE,
)


def polarity(words: str, name: str, others: Sequence[str] = ()) -> str:
    """``allow`` or ``block`` as the author says of the parameter ``name``, or nothing.

    ``others`` are further masks, so that what is said of them is not taken for this one.
    """
    own, general = set(), set()
    for sentence in re.split(r"[.;](?:\s|$)|\n", _plainer(words)):
        for found in _STATEMENT.finditer(sentence):
            meaning, value = _meaning(found["rest"]), found["value"].lower()
            if not meaning or (
                not value.startswith(("true", "false")) and not _of_masks(sentence, name, others)
            ):
                continue  # a number may as well be a token's
            if value in ("false", "0"):
                meaning = {"allow": "block", "block": "allow"}[meaning]
            if name and _names(sentence, name):
                own.add(meaning)
            elif not any(_names(sentence, other) for other in others):
                general.add(meaning)
    said = own or general
    return said.pop() if len(said) == 1 else ""


_ADDED = re.compile(
    r"\badd(s|ed|ing|itive|itively)?\b|\binf\b|infinity|\bfloats?\b|\bnegative\b|\bminus\b|-1e\d|finfo|\bbias",
    re.IGNORECASE,
)
_TRUTH = re.compile(
    r"(^|_)(allowed|allow|blocked|visible|keep|kept|hidden|forbidden|real|valid|is_pad)(_|$)", re.IGNORECASE
)


def is_boolean(words: str, name: str, others: Sequence[str] = (), annotation: str = "") -> bool:
    """Whether the author says by a word, an annotation or the name that a mask holds truth values."""
    if "bool" in annotation.lower():
        return True
    about = [
        sentence
        for sentence in re.split(r"[.;](?:\s|$)|\n", words)
        if _names(sentence, name)
        or (_of_masks(sentence, name, others) and not any(_names(sentence, other) for other in others))
    ]
    if "float" in annotation.lower() or any(_ADDED.search(sentence) for sentence in about):
        return False
    said = any(re.search(r"\bbool", sentence, re.IGNORECASE) for sentence in about)
    return said or bool(polarity(words, name, others)) or _TRUTH.search(name) is not None


def _plainer(words: str) -> str:
    """Negations spelled out, and what is no padding or not masked called by one word."""
    words = re.sub(r"[`*]", "", words)
    words = re.sub(
        r"\b(is|are|can|may|must|should|does|do|was|wo|could)n['’]t\b", r"\1 not", words, flags=re.IGNORECASE
    )
    words = re.sub(
        r"\b(non|not|no|other than|rather than)[- ]*(a )?pad\w*", "real", words, flags=re.IGNORECASE
    )
    return re.sub(
        r"\b(unmasked|non[- ]?masked|not masked|unblocked)\b", "visible", words, flags=re.IGNORECASE
    )


def _of_masks(sentence: str, name: str, others: Sequence[str]) -> bool:
    """Whether a sentence speaks of masks at all."""
    named = any(_names(sentence, known) for known in (name, *others) if known)
    return named or re.search(r"mask|visib|attend", sentence, re.IGNORECASE) is not None


def _names(sentence: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sentence) is not None


def _meaning(phrase: str) -> str:
    """What a phrase says of the places that it speaks of."""
    phrase = re.split(r"\b(?:and|but|0|False)\b", phrase)[0]
    block, allow = _BLOCK.search(phrase), _ALLOW.search(phrase)
    padding = re.search(r"\bpad", phrase, re.IGNORECASE)
    if padding:  # whatever else is said of it
        block, allow = padding, None
    if block and (not allow or block.start() < allow.start()):
        meaning = "block"
    elif allow:
        meaning = "allow"
    else:
        return ""
    first = min(m.start() for m in (block, allow) if m)
    if _NOT.search(phrase[:first]):
        meaning = {"allow": "block", "block": "allow"}[meaning]
    return meaning

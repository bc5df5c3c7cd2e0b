"""What authors write of their masks: ``True = blocked``, ``1 for real tokens``, ``mask: 0 -> hidden``.

A statement counts for the parameters that its sentence names, or, where it names none, for those of which
nothing else is said.  Statements that contradict each other say nothing.  A sentence may go over several lines of a
docstring; what a comment says ends with its line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_VALUE = r"(?P<value>\bTrue(?:\s*/\s*1)?\b|\bFalse\b|(?<![\w.=(,-])[01](?:\.0?(?!\d))?(?!\w)|\bnon-?zero\b|\bones?\b)"
_STATEMENT = re.compile(
    _VALUE + r"(?: (?:values?|entries|entry|elements?|positions?|places?|cells?))?"
    r"\s*(?:=+>?|:|->|→|means?|marks?|indicates?|denotes?|signals?|is|are|where|for|at|on|at the|gets?|receives?|"
    r"become|becomes|(?:will|shall|must|should|may|can)(?= not| be))\s*"
    r"(?P<rest>[^.;,\n]{1,60})",
    re.IGNORECASE,
)
# The value last.  What is set to 0 may be scores or weights, so that only marks are taken for those of a mask.
_MARKED = re.compile(
    r"(?P<rest>[^.;:,\n]{1,60}?)\s(?:(?:marked|flagged|denoted|indicated|signal+ed) (?:with|by|as) (?:an? )?|"
    r"(?:filled|set) (?:with|to) (?=True|False|one))" + _VALUE,
    re.IGNORECASE,
)
# The condition last: "it blocks where the mask is True".
_WHERE = re.compile(
    r"(?P<rest>[^.;:,\n]{1,60}?)\s(?:where|wherever|when|whenever|if) (?:it|the \w+|\w*mask\w*|\w*msk\w*)"
    r"(?:\[[^]]*\])? ?(?:is|==?|equals|has) ?(?:set to )?" + _VALUE,
    re.IGNORECASE,
)
_MARKS = re.compile(
    r"\bmask\w* (?:marks|flags|selects|indicates|tells) (?P<rest>[^.;,\n]{1,60})", re.IGNORECASE
)
# What stands before a number that is a token's: "ids in which 0 marks padding".
_OF_TOKEN = re.compile(
    r"(\b(ids?|idx|index|indices)\b\s*(=|(in|of) which|where|with|whose)?|\btoken)\s*$", re.IGNORECASE
)
_ONES = r"(?P<ones>\b(?:ones|1s|True)\b)"
_SIDE = r"\b(?P<side>lower|upper)[- ]?triang\w*"
_TRIANGLES = (
    re.compile(
        _SIDE + r"(?:(?!zero|\b0|False|inf|rest|else|other|\band\b)[^.;,\n]){0,40}?" + _ONES, re.IGNORECASE
    ),
    re.compile(_ONES + r" (?:in|on|at|for) (?:the |its )?(?:strict(?:ly)? )?" + _SIDE, re.IGNORECASE),
    re.compile(_SIDE + r" (?:\(\w+\) )?(?:bool\w* )?(?P<ones>mask|matrix of ones)(?! of)", re.IGNORECASE),
)
_TURNED = re.compile(r"invert|inverse|negat|complement|flip|revers|opposite|1 ?- |== ?0|~", re.IGNORECASE)
_NOT = re.compile(r"\b(not|never|no|n't|cannot)\b", re.IGNORECASE)
_BLOCK = re.compile(
    r"block|masked|mask out|ignor|forbid|hid|\bpad|disallow|future|exclu|remov|drop|invisible|prohibit|"
    r"-\s?inf\b|(minus|negative) infinity|-1e\d|large negative|"
    r"gesperrt|verboten|verdeckt|versteckt|maskiert|interdit|masqu|cach[ée]\w*|bloqu|ocult|zukunft",
    re.IGNORECASE,
)
_ALLOW = re.compile(
    r"allow|visib|keep|kept|attend|\bsee\b|seen|look|\breal\b|permit|take part|valid|\bwords?\b|past|used|"
    r"erlaubt|sichtbar|autoris|permi[st]|"
    r"influenc(?!\w* by (the |a |this )?mask)",
    re.IGNORECASE,
)
# What begins on a line of its own: an item of a list, or what is said of one name or value.
_ITEM = re.compile(
    r"\s*([-*•+>:@]|\d+[.)]\s|(True|False|[01])\b|\w+\s*[(\[]"
    r"|\*{0,2}\w+(, *\*{0,2}\w+)*\s*(:|=|--|->|—)(\s|$))"
)


def polarity(words: str, name: str, others: Sequence[str] = ()) -> str:
    """``allow`` or ``block`` as the author says of the parameter ``name``, or nothing.

    ``others`` are further masks, so that what is said of them is not taken for this one.
    """
    own, general = set(), set()
    for sentence in _sentences(_plainer(words)):
        for value, meaning in _statements(sentence, name, others):
            if value in ("false", "0"):
                meaning = {"allow": "block", "block": "allow"}[meaning]
            if name and _names(sentence, name):
                own.add(meaning)
            elif not any(_names(sentence, other) for other in others):
                general.add(meaning)
        about = not name or _names(sentence, name)
        if about and not sentence.startswith("#") and not _TURNED.search(words):
            sides = [found["side"].lower() for p in _TRIANGLES for found in p.finditer(sentence)]
            meant = {{"lower": "allow", "upper": "block"}[side] for side in sides}
            general, own = (general | meant, own) if not name else (general, own | meant)
    said = own or general
    return said.pop() if len(said) == 1 else ""


def _sentences(words: str) -> list[str]:
    """Lines that continue each other are joined; not after a blank line, or where an item or less indent begins."""
    joined: list[str] = []
    before = ""
    for line in words.split("\n"):
        text, last = line.strip(), before.strip()
        indent, former = len(line) - len(line.lstrip()), len(before) - len(before.lstrip())
        ended = not text or not last or last.startswith("#") or last[-1] in ".;:"
        if ended or not indent or indent < former or _ITEM.match(line):
            joined.append(text)
        else:
            joined[-1] += f" {text}"
        before = line
    sentences = []
    for text in joined:
        of, (first, *rest) = re.match(r"\W*(\w+)\s*[:(]", text), re.split(r"[.;](?:\s+|$)", text)
        named = [f"{of[1]} {r}" if of and re.match(r"[01]\b", r) else r for r in rest]
        sentences += [first, *named]  # what begins with a number is said of the item
    return sentences


def _statements(sentence: str, name: str, others: Sequence[str]) -> list[tuple[str, str]]:
    """The values that a sentence speaks of, and what it says that they mean."""
    result = []
    for found in _MARKS.finditer(sentence):
        meaning = _meaning(found["rest"])
        if meaning and not re.search(r"[01]|True|False", found["rest"]):
            result.append(("true", meaning))
    for pattern in (_STATEMENT, _MARKED, _WHERE):
        for found in pattern.finditer(sentence):
            parts = re.split(r"\b(?:and|but|0|False)\b", found["rest"])
            meaning, value = _meaning(parts[0 if pattern is _STATEMENT else -1]), found["value"].lower()
            if not value.startswith(("true", "false")):  # a number may as well be a token's
                value = value[0] if value[0] in "01" else value
                before = sentence[: found.start("value")]
                padding = re.search(r"\bpad", parts[0], re.IGNORECASE)
                if (padding and _OF_TOKEN.search(before)) or not _of_masks(sentence, name, others):
                    continue
            if meaning:
                result.append((value, meaning))
    return result


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
        for sentence in _sentences(words)
        if _names(sentence, name)
        or (_of_masks(sentence, name, others) and not any(_names(sentence, other) for other in others))
    ]
    if "float" in annotation.lower() or any(_ADDED.search(sentence) for sentence in about):
        return False
    said = any(re.search(r"\bbool", sentence, re.IGNORECASE) for sentence in about)
    return said or bool(polarity(words, name, others)) or _TRUTH.search(name) is not None


def says_one_row(words: str, name: str) -> bool:
    """Whether the author gives a mask the shape (B, S), without axes for queries and heads."""
    batch, keys = r"(?:B|N|bsz|bs|batch\w*)", r"(?:S|T|L|\w*seq\w*|\w*len\w*)"
    return (
        re.search(rf"(?<!\w){re.escape(name)}\b[^.;\n]{{0,40}}?[(\[] *{batch}, *{keys} *[)\]]", words)
        is not None
    )


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

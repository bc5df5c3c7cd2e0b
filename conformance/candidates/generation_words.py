"""What authors write of their generation: what it returns, what its bound counts, when it ends, that it samples."""

from __future__ import annotations

import re

START = r"(the )?(leading |initial )?(bos|sos|prompt|start\w*)\b"
WITHOUT_START = re.compile(
    rf"\b(without|excluding|excludes?|not includ\w+|no|minus|drops?|dropped|strips?|stripped|omit\w*) {START}"
    r"|\bnew (tokens |ids )?(only|alone)|\bonly (the )?(new|generated)\b|\blist of new (ids|tokens)"
    rf"|\b{START} (id |token )?(is |are )?(not|never) (returned|included|part|kept|in)\b"
    rf"|\b{START} (id |token )?(is |are )?(left out|dropped|stripped|removed|excluded|omitted)\b",
    re.IGNORECASE,
)
WITH_START = re.compile(
    rf"\b(begin|start)\w* with {START}|\[\s*(bos|sos|start)\w*\b"
    rf"|\b(contain|includ)\w* {START}|\bwith {START} (first|in front)",
    re.IGNORECASE,
)
COUNTS_NEW = (
    r"\b(at most|up to|exactly) {bound} (tokens|ids|steps)? ?(are |is )?"
    r"(generated |produced |come )?(after|beyond|behind) {start}"
    r"|\b(at most|up to|exactly) {bound} new\b|\b{bound}\W{{1,4}}(the )?(maximum |max )?number of new\b"
)
COUNTS_ALL = (
    r"\b{bound} tokens (in total|in all)|\b{bound} (counts|includes|is|:|=) ?(all|the total|total)\b"
    r"|\b{bound} tokens,? (including|with|counting) {start}"
)
LENGTH_AT_MOST = r"\b(L|T|length)\b (is )?(<=|≤|at most|up to) {bound}\b(?! ?\+)"
LENGTH_ONE_MORE = r"\b(L|T|length)\b (is )?(<=|≤|at most|up to) {bound} ?\+ ?1\b"
EOS_WORD = r"(eos|end.of.(sequence|sentence|text)|end.token|stop.token|end.symbol)"
STOPPING = r"\b(stop|end|until|break|finish|terminat|halt)\w*\b"
EOS_WORDS = re.compile(
    rf"{STOPPING}[^.\n]{{0,40}}\b{EOS_WORD}|{EOS_WORD}[^.\n]{{0,40}}{STOPPING}",
    re.IGNORECASE,
)
NO_EOS_WORDS = re.compile(
    rf"\b(no|without|ignor\w+|not|never)\b[^.\n]{{0,30}}\b{EOS_WORD}|no (early )?stop|(not|never) (stop|end)",
    re.IGNORECASE,
)
SAMPLES = re.compile(r"\bsampl(e|es|ed|ing)\b|multinomial", re.IGNORECASE)


def on_start(words: str) -> str:
    """Whether the author says that BOS or the prompt is returned: ``full``, ``new``, or nothing."""
    left = WITHOUT_START.sub("", words)
    if WITH_START.search(left):
        return "full"
    return "new" if left != words else ""


def on_bound(words: str, name: str, whole: bool) -> str:
    """What the author says that the bound ``name`` counts: ``all``, ``new``, or nothing.

    ``whole`` says whether BOS or the prompt is returned, so that a length is one of all tokens.
    """
    known = {"bound": re.escape(name), "start": START}

    def says(pattern: str) -> bool:
        return bool(re.search(pattern.format(**known), words, re.IGNORECASE))

    all_said = says(COUNTS_ALL) or (whole and says(LENGTH_AT_MOST))
    new_said = says(COUNTS_NEW) or says(LENGTH_ONE_MORE if whole else LENGTH_AT_MOST)
    if all_said == new_said:
        return ""
    return "all" if all_said else "new"


def on_end(words: str) -> bool | None:
    """Whether the author says that it stops at EOS; None where nothing is said."""
    if NO_EOS_WORDS.search(words):
        return False
    return True if EOS_WORDS.search(words) else None


def of_one_row(words: str, name: str) -> bool:
    """Whether the author says that ``name`` is a single sequence: ``src: (1, S)``."""
    return bool(re.search(rf"\b{re.escape(name)}\b[^.\n]{{0,12}}[(\[]\s*1\s*,", words))

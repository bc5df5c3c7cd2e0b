"""Probing of generation: how a loop is called and answered, what its bound counts, and how it ends.

:func:`find_out` makes a few calls on the stand-in model and records what they show in the subject's conventions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from ..engine.cases import Case, Inputs, OutOfDomain
from . import generation_words as said
from .errors import CallFailed
from .generation_table import Endless
from .stand_in import lacks
from .subject import Results

if TYPE_CHECKING:
    from .generation import GenerationSubject

FORMS = ("(B, S)", "(S,)", "list", "list of lists", "(S, B)")
ANSWERS = {"logits": "logits", "tuple": "(logits, …)", "named": "something with .logits"}
MOST_TRIED = 32
SOURCE_NAMES = re.compile(r"src|source|enc|sentence")
PROMPT_NAMES = re.compile(r"prompt|idx|context|prefix|start|^ids$|^tokens$|seed|seq")


@dataclass(frozen=True)
class Manner:
    """How a loop is called and answered.

    ``contract`` is ``source`` (encoded) or ``prompt`` (continued), ``form`` that of the ids passed, ``answer`` that
    of the model's results, ``paired`` whether its encoder answers with (memory, mask).
    """

    framework: str
    contract: str = "source"
    form: str = "(B, S)"
    answer: str = "logits"
    paired: bool = False


def find_out(subject: GenerationSubject) -> None:
    """One plan that never ends, one that goes through every id, one that ends, and one with two rows."""
    _find_manner(subject, _contracts(subject))
    if subject.barred is not None:
        return
    _find_end(subject)
    _find_batches(subject)
    manner = subject.manner
    subject.probed("contract", "decoder_only" if manner.contract == "prompt" else "encoder_decoder")
    subject.probed("ends", subject.convention("ends"))
    if subject.ends:
        subject.probed("end_token", subject.convention("end_token"))
    else:
        subject.irrelevant.add("eos_at")
    subject.conventions["model_answer"] = (ANSWERS.get(manner.answer, "logits"), "probed")
    subject.conventions["takes"] = (manner.form, "probed")
    if not {"bos", "eos", "pad"} & subject.given.keys():
        subject.irrelevant.add("ids")


def _probe_case(**changes: object) -> Case:
    case = {
        "new_tokens": 5,
        "eos_at": 0,
        "S": 7,  # so many that no answer is taken apart by its length alone
        "V": 13,
        "ids": "usual",
        "B": 1,
        "seed": 11,
    }
    return Case({**case, **changes})


# the manner of a call


def _contracts(subject: GenerationSubject) -> list[str]:
    """The contracts to be tried, the likelier one first."""
    declared = subject.declared("contract")
    if declared:
        return ["prompt" if declared == "decoder_only" else "source"]
    if {"memory", "encoder"} & subject.given.keys():
        return ["source"]
    name = subject.source_name
    if not name or (PROMPT_NAMES.search(name) and not SOURCE_NAMES.search(name)):
        return ["prompt", "source"]
    return ["source", "prompt"]


def _manners(subject: GenerationSubject, contracts: Sequence[str], paired: bool) -> Iterator[Manner]:
    """Likely ones first."""
    answers = ("last",) if subject.convention("logits") == "last" else ANSWERS
    for framework, contract, form, answer in product(subject.frameworks, contracts, FORMS, answers):
        if form == FORMS[0] or {"src", "start"} & subject.given.keys():
            yield Manner(framework, contract, form, answer, paired)


def _find_manner(subject: GenerationSubject, contracts: Sequence[str]) -> None:
    """The manner in which it does as it should; where there is none, one in which it runs at all."""
    case = _probe_case(eos_at=0 if "max_len" in subject.given else 4)
    failures: list[tuple[int, Manner, CallFailed]] = []
    ran: Manner | None = None
    endless: Manner | None = None
    for paired in (False, True):
        encoded, tries = False, 0
        for manner in _manners(subject, contracts, paired):
            if tries >= MOST_TRIED:
                break
            tries += 1
            subject.adopt(manner)
            try:
                results = _learn(subject, case)
            except Endless:
                if subject.barred is not None:
                    return
                endless = endless or manner
                tries += 12  # such a call costs as much as many others
            except OutOfDomain:
                continue
            except CallFailed as error:
                if error.kind in ("time-out", "exit", "protocol"):
                    subject.barred = error
                    return
                table = subject.table
                failures.append((table.calls if table else 0, manner, error))
                encoded = encoded or bool(table and table.encoded)
                continue
            else:
                if _fits(subject, results):
                    return
                if manner.contract == "prompt" and "source" in contracts and results["table"].encoded:
                    continue  # what encodes is not a decoder alone
                ran = ran or manner
            if "prompt" in contracts and _continues(subject):
                _find_manner(subject, ["prompt"])
                return
        if not encoded:
            break
    chosen = ran or endless
    if chosen is None and failures:
        calls, chosen, error = max(failures, key=lambda item: (item[0], item[1].paired))
        if lacks(error, calls > 0):
            subject.barred = OutOfDomain(f"it asks its model for more than triu's stand-in offers: {error}")
    subject.adopt(chosen or next(_manners(subject, contracts, False)))
    if not subject.bound_is_known and "max_len" in subject.given and subject.barred is None:
        _count_bound(subject, case)


def _continues(subject: GenerationSubject) -> bool:
    """Whether the last call, made as for an encoder and a decoder, shows a decoder alone that goes on from x.

    Then its model is given one sequence of ids a call, which starts out from the ids that were passed, and
    nothing is encoded.  An encoder and a decoder need a memory, or the source beside the target.
    """
    table, name = subject.table, subject.source_name
    if table is None or not table.asked or table.encoded:
        return False
    if (
        subject.manner.contract != "source"
        or not name
        or {"memory", "encoder", "start"} & subject.given.keys()
    ):
        return False
    if "bos" in subject.given and SOURCE_NAMES.search(name):
        return False
    passed = set(table.plan.sources.ravel().tolist())
    alone = all(ask.alone for ask in table.asked)
    return alone and set(table.asked[0].target.ravel().tolist()) <= passed


def _learn(subject: GenerationSubject, case: Case) -> Results:
    """The probe's first call; where the start is built in, it is learnt from the log and the call repeated."""
    results = subject.run(Inputs(case, {}))
    asked = results["table"].asked
    built_in = subject.manner.contract == "source" and "bos" not in subject.given
    if built_in and asked and asked[0].target.shape[1] == 1:
        seen = int(asked[0].target[0, 0])
        if seen != subject.bos and seen not in results["plan"].sources:
            subject.bos = seen
            results = subject.run(Inputs(case, {}))
    return results


def _fits(subject: GenerationSubject, results: Results) -> bool:
    """Whether the loop did what it should, under either reading of the bound; that reading is kept."""
    plan, rows, table = results["plan"], results["rows"], results["table"]
    if not table.asked or len(rows) != 1 or (subject.manner.contract == "prompt" and table.encoded):
        return False
    start, tokens = plan.starts[0].tolist(), list(plan.tokens[0])
    passed = subject.passed(results["case"])
    readings = (subject.convention("bound"),) if subject.bound_is_known else ("new", "all")
    for reading in readings:
        count = passed - (len(start) if reading == "all" else 0)
        options = [tokens[:count]] if "max_len" in subject.given else [tokens, tokens[:-1]]
        if count > 0 and any(rows[0] in (start + option, option) for option in options):
            if not subject.bound_is_known and "max_len" in subject.given:
                subject.conventions["bound"] = (reading, "probed")
            _see_start(subject, rows[0][: len(start)] == start)
            return True
    return False


def _see_start(subject: GenerationSubject, there: bool) -> None:
    """Whether BOS or the prompt came back.  Where it did not, only words make that a convention."""
    how = subject.conventions["returns"][1]
    if how == "declared":
        return
    if there:
        subject.conventions["returns"] = ("full", "probed")
    elif how != "by its own words":  # it may leave the work, and the words, to a class beside it
        entries = subject.session.description.get("objects", ())
        beside = [said.on_start(str(entry.get("doc", ""))) for entry in entries]
        if "new" in beside and "full" not in beside:
            subject.conventions["returns"] = ("new", "by the words beside it")


def _count_bound(subject: GenerationSubject, case: Case) -> None:
    """The reading of the bound by the number of tokens alone, where the tokens are not as they should be."""
    try:
        results = _learn(subject, case)
    except (CallFailed, OutOfDomain):
        return
    start, row = results["plan"].starts.shape[1], next(iter(results["rows"]), [])
    count = len(row) - start * (subject.convention("returns") != "new")
    passed = subject.passed(case)
    if count in (passed, passed - start):
        subject.conventions["bound"] = ("all" if count == passed - start else "new", "probed")


# the end, and batches


def _find_end(subject: GenerationSubject) -> None:
    """The id that ends a sequence, where it is built in, and whether it is returned."""
    if not subject.declared("ends") and "eos" not in subject.given and not subject.declared("eos_id"):
        _find_end_id(subject)
    if not subject.ends or subject.declared("end_token"):
        return
    try:
        results = subject.run(Inputs(_probe_case(eos_at=3), {}))
    except (CallFailed, OutOfDomain):
        return
    plan, row = results["plan"], next(iter(results["rows"]), [])
    start = plan.starts[0].tolist() if subject.convention("returns") != "new" else []
    if row == [*start, *plan.tokens[0][:2]]:
        subject.conventions["end_token"] = ("dropped", "probed")


def _find_end_id(subject: GenerationSubject) -> None:
    """The id after which it asks no more, on a plan that goes through every id."""
    subject.conventions["ends"] = ("eos" if _owes_end(subject) else "bound", "probed")
    order = [n for n in (4, 2, 5, 3, 6, 1, 7, 0, *range(8, 13)) if n != subject.bos]
    try:
        asked = subject.run_plan(_probe_case(new_tokens=len(order)), tokens=order)["table"].asked
    except (CallFailed, OutOfDomain):
        return
    last = asked[-1].best[0] if asked else None
    if last is not None and len(asked) < len(order) - 1 and not (last == 0 and subject.bos == 1):
        subject.conventions |= {"eos_id": (str(last), "probed"), "ends": ("eos", "probed")}


def _owes_end(subject: GenerationSubject) -> bool:
    """Whether it owes an end at EOS though it takes no id for it; docs/conventions.md has the rule."""
    if "autoregressive" in subject.binding.entry["name"].lower():
        return True
    told = said.on_end(subject.words)
    if told is not None:
        return told
    return subject.manner.contract == "source" and "bos" not in subject.given and "src" in subject.given


def _find_batches(subject: GenerationSubject) -> None:
    """How many rows it takes: one where its author says so, or where two do not come back as two."""
    subject.limits["B"] = (1,)
    place = subject.given.get("src") or subject.given.get("start")
    if place is None and "memory" not in subject.given:
        return
    if place is not None and said.of_one_row(subject.words, place.name):
        return
    try:
        subject.limits["B"] = (1, 2, 3)
        rows = subject.run(Inputs(_probe_case(B=2), {}))["rows"]
    except (CallFailed, OutOfDomain):
        rows = []
    subject.limits["B"] = (1, 2, 3) if len(rows) == 2 else (1,)

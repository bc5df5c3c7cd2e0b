"""Properties of generation: what the loop feeds to the stand-in model, and what it returns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ..candidates.errors import CallFailed
from ..candidates.generation import GenerationSubject
from ..engine.cases import Inputs, OutOfDomain
from ..engine.trial import Difference, Trial, Violation

__all__ = [
    "decoder_reads_memory",
    "ends_at_eos",
    "exact_bound",
    "first_call",
    "generation_ends",
    "grows_by_one",
    "own_prefix",
    "returns_tokens",
    "returns_what_was_chosen",
    "rows_as_alone",
    "same_again",
    "shows_newest",
    "source_encoded_once",
    "starts_as_given",
    "width_one_is_greedy",
]


def subject_of(trial: Trial) -> GenerationSubject:
    assert isinstance(trial.subject, GenerationSubject)
    return trial.subject


def called(trial: Trial) -> dict[str, Any]:
    """The results of the case, with the plan shown beside them in a report."""
    plan = subject_of(trial).plan(trial.case)
    n = trial.case["new_tokens"]
    trial.shown = {
        **({"source": plan.sources} if plan.sources.size else {}),
        "start": plan.starts,
        "next tokens by the table": [list(row[: n + 1]) for row in plan.tokens],
        **({"EOS": plan.eos} if plan.eos >= 0 else {}),
    }
    return trial.call()


def fed_of(
    results: dict[str, Any],
) -> list[tuple[np.ndarray, tuple[int, ...], tuple[int, ...]]]:
    """For each call the target (B, t), and the first and second token of the answer's last row.

    A loop that writes into a buffer of fixed length and fills it up with padding is read without that padding.
    """
    plan, asked = results["plan"], results["table"].asked
    if results["table"].complaints:
        raise Violation(results["table"].complaints[0])
    if not asked:
        row, start = results["rows"][0] if results["rows"] else [], plan.starts[0].tolist()
        if row in ([], start):
            raise OutOfDomain("it generates nothing here")
        raise Violation("it returned tokens without having asked the model anything", Difference(start, row))
    lengths = {ask.target.shape[1] for ask in asked}
    fed = []
    for k, ask in enumerate(asked):
        t = plan.starts.shape[1] + k
        rest = ask.target[:, t:]
        if len(lengths) == 1 and rest.size and np.isin(rest, (plan.pad, 0)).all():
            target = ask.target[:, :t]
            leaders = [plan.leaders(r, tuple(ids)) for r, ids in zip(ask.rows, target.tolist(), strict=True)]
            fed.append((target, tuple(a for a, _ in leaders), tuple(b for _, b in leaders)))
        else:
            fed.append((ask.target, ask.best, ask.second))
    return fed


def _row(results: dict[str, Any], b: int = 0) -> list[int]:
    rows = results["rows"]
    if len(rows) != len(results["plan"].starts):
        raise Violation(
            f"it returned {len(rows)} sequences for {len(results['plan'].starts)}",
            Difference(len(results["plan"].starts), len(rows)),
        )
    return list(rows[b])


def generation_ends(trial: Trial) -> None:
    """The loop ends; what it returns is another claim's matter."""
    try:
        called(trial)
    except CallFailed as error:
        if error.kind != "result":
            raise


def returns_tokens(trial: Trial) -> None:
    """Token ids, one sequence for each row."""
    _row(called(trial))


def first_call(trial: Trial) -> None:
    """The first call gets the start token alone, or the whole prompt."""
    results = called(trial)
    target, start = fed_of(results)[0][0], results["plan"].starts
    if target.shape != start.shape or not (target == start).all():
        what = (
            "the prompt" if trial.subject.convention("contract") == "decoder_only" else "BOS and nothing else"
        )
        raise Violation(
            f"the first target that the model is given is {target[0].tolist()}, expected {start[0].tolist()}: {what}"
            + (", and not the source" if np.array_equal(target, results["plan"].sources) else "")
            + (f", and not {target.shape[1]} tokens" if target.shape[1] > start.shape[1] else ""),
            Difference(start[0].tolist(), target[0].tolist()),
        )


def grows_by_one(trial: Trial) -> None:
    """Every call's target is one token longer than the one before."""
    results = called(trial)
    lengths = [target.shape[1] for target, *_ in fed_of(results)]
    start = results["plan"].starts.shape[1]
    expected = list(range(start, start + len(lengths)))
    if lengths != expected:
        k = next(k for k, (a, b) in enumerate(zip(lengths, expected, strict=True)) if a != b)
        raise Violation(
            f"call {k + 1} of the model has {lengths[k]} token{'s' * (lengths[k] != 1)} as its target, expected "
            f"{expected[k]}: everything generated so far",
            Difference(expected, lengths, (k,)),
        )


def own_prefix(trial: Trial) -> None:
    """Every call's target is the one before it, with one token behind."""
    fed = fed_of(called(trial))
    for k, ((before, *_), (after, *_)) in enumerate(pairwise(fed)):
        if after.shape != (before.shape[0], before.shape[1] + 1):
            raise Violation(
                f"call {k + 2} has a target of shape {list(after.shape)} after one of {list(before.shape)}",
                Difference(
                    f"[{before.shape[0]}, {before.shape[1] + 1}]",
                    str(list(after.shape)),
                ),
            )
        if not (after[:, :-1] == before).all():
            expected = [*before[0].tolist(), int(after[0, -1])]
            raise Violation(
                f"call {k + 2} is given {after[0].tolist()}, which does not go on from {before[0].tolist()}",
                Difference(expected, after[0].tolist()),
            )


def taken_of(trial: Trial, results: dict[str, Any]) -> list[int]:
    """The token that followed each call, as the next call or the returned row shows it."""
    fed = fed_of(results)
    taken = [int(target[0, -1]) for target, *_ in fed[1:]]
    new = _row(results)[_skipped(trial, results) :]
    if len(new) == len(taken) + 1 and new[:-1] == taken:
        taken.append(new[-1])
    eos = results["plan"].eos
    # behind EOS comes filler, which nobody chose
    return taken[: taken.index(eos) + 1] if eos in taken else taken


def _skipped(trial: Trial, results: dict[str, Any]) -> int:
    """How many tokens of a returned row were there before the first new one."""
    return 0 if trial.subject.convention("returns") == "new" else results["plan"].starts.shape[1]


def starts_as_given(trial: Trial) -> None:
    """The returned row begins with BOS, or with the prompt as it was."""
    results = called(trial)
    row, start = _row(results), results["plan"].starts[0].tolist()
    if trial.subject.convention("returns") == "new":
        start = []
    if row[: len(start)] != start:
        what = "the prompt" if trial.subject.convention("contract") == "decoder_only" else "BOS"
        raise Violation(
            f"what it returned, {row}, does not start with {what}, {start}",
            Difference(start, row[: len(start)]),
        )


def returns_what_was_chosen(trial: Trial) -> None:
    """The returned tokens are the ones that the loop went on with, in order."""
    results = called(trial)
    fed, row = fed_of(results), _row(results)
    skip = _skipped(trial, results)
    used = fed[-1][0][0].tolist()[results["plan"].starts.shape[1] :]
    new = row[skip:]
    count = min(len(used), len(new))
    if new[:count] != used[:count] or len(new) < len(used) - 1:
        raise Violation(
            f"the loop went on with the tokens {used}, but returned {new}",
            Difference(used, new),
        )


def exact_bound(trial: Trial) -> None:
    """Where no EOS comes, exactly as many tokens as the bound allows."""
    n = trial.case["new_tokens"]
    try:
        results = called(trial)
    except CallFailed as error:
        if error.kind == "exception" and n == 0:
            return  # refused
        raise
    subject = subject_of(trial)
    row, wanted = _row(results), subject.wanted(results)
    start, skip = results["plan"].starts.shape[1], _skipped(trial, results)
    count, passed = len(row) - skip, subject.passed(trial.case)
    if len(row) != len(wanted):
        known = subject.conventions.get("bound", ("", "default"))
        allowed = f"{n} new tokens"
        if known[1] == "default":
            allowed = (
                f"{passed - start} new tokens (if it counts all) or {passed} (if it counts the new ones)"
            )
        elif known[1] == "probed":
            allowed += f", as it counts {'all tokens' if known[0] == 'all' else 'the new ones'} elsewhere"
        raise Violation(
            f"with {subject.bound_in_words(trial.case)} and no EOS it returned {count} new "
            f"token{'s' * (count != 1)}, expected {allowed}",
            Difference(wanted, row),
        )


def shows_newest(trial: Trial) -> None:
    """With room for fewer tokens than there are, every call gets the last of them and no more."""
    try:
        results = called(trial)
    except CallFailed as error:
        if error.kind == "exception":
            raise trial.skip("it refuses more tokens than its model takes") from None
        raise
    if any(ask.cached for ask in results["table"].asked):
        raise trial.skip("it keeps a cache: what the model takes of it is the model's affair")
    room, plan = trial.case["window"], results["plan"]
    shown = [[n for n in ask.target[0].tolist() if n != plan.pad] for ask in results["table"].asked]
    row = _row(results)
    whole = row if trial.subject.convention("returns") != "new" else [*plan.starts[0].tolist(), *row]
    knows = "context" in trial.subject.binding.arguments
    longest = max(map(len, shown), default=0)
    if max(plan.starts.shape[1] + len(shown) - 1, longest) <= room:
        raise trial.skip("it never comes to more tokens than its model takes")
    if not knows and longest > room:
        raise trial.skip("it does not ask how many tokens its model takes")
    for k, part in enumerate(shown):
        here = whole[: plan.starts.shape[1] + k]
        if len(part) > room:
            raise Violation(
                f"call {k + 1} shows the model {len(part)} tokens, and it takes {room} at most",
                Difference(here[-room:], part),
            )
        if not part or part != here[-len(part) :]:
            old = ", the oldest ones" if part == here[: len(part)] else ""
            raise Violation(
                f"with room for {room} tokens, call {k + 1} shows the model {part}{old}; "
                f"the newest are {here[-room:]}",
                Difference(here[-room:], part),
            )


def ends_at_eos(trial: Trial) -> None:
    """The row up to EOS, and nothing behind it but filler."""
    results = called(trial)
    subject, plan, case = subject_of(trial), results["plan"], trial.case
    if not case["eos_at"] and not case.get("prompt_ends"):
        raise trial.skip("no EOS comes")
    row, wanted = _row(results), subject.wanted(results)
    if subject.cut(row, results) == wanted:
        return
    if case.get("prompt_ends"):
        told = f"the prompt holds EOS ({plan.eos}), which ends nothing"
    elif case["eos_at"] > case["new_tokens"] and subject.has("argument max_len"):
        told = f"EOS ({plan.eos}) would come after the bound"
    else:
        told = f"new token {case['eos_at']} is EOS ({plan.eos})"
    raise Violation(f"{told}, but it returned {row}, expected {wanted}", Difference(wanted, row))


def rows_as_alone(trial: Trial) -> None:
    """Every row of a batch is what its own model answers lead to."""
    results = called(trial)
    subject = subject_of(trial)
    for b in range(trial.case["B"]):
        row, wanted = _row(results, b), subject.wanted(results, b)
        if subject.cut(row, results, b) != wanted:
            raise Violation(
                f"row {b} of the batch of {trial.case['B']} is {row}; alone it would be {wanted}",
                Difference(wanted, row),
            )


def same_again(trial: Trial) -> None:
    """The same call, before and after another one."""
    first = called(trial)["rows"]
    other = trial.case.replaced(seed=trial.case["seed"] + 1)
    trial.subject.run(Inputs(other, {}))
    second = trial.call(fresh=True)["rows"]
    if first != second:
        raise Violation(
            f"the same call returned {second}, and {first} before",
            Difference(first, second),
        )


def source_encoded_once(trial: Trial) -> None:
    """One call of the encoder for a whole sequence."""
    table = called(trial)["table"]
    times = table.encoded or sum(ask.memory == "source" for ask in table.asked)
    if not times:
        raise trial.skip("it is given the memory, or the model has no encoder")
    if times > 1:
        raise Violation(
            f"the source was encoded {times} times for {len(table.asked)} steps",
            Difference(1, times),
        )


def decoder_reads_memory(trial: Trial) -> None:
    """At each step the decoder gets what the encoder returned for this source."""
    table = called(trial)["table"]
    kinds = [ask.memory for ask in table.asked]
    whole = all(ask.method == "forward" for ask in table.asked) and not trial.subject.has("argument encoder")
    if not kinds or set(kinds) == {"none"} or (set(kinds) == {"source"} and (whole or not table.encoded)):
        raise trial.skip("the model keeps the memory itself, or is given the source")
    for k, kind in enumerate(kinds):
        if kind != "memory":
            what = {
                "source": "the source's token ids",
                "none": "no memory",
                "other": "the memory of another source",
                "strange": "an array of the memory's shape that the encoder did not return",
            }
            raise Violation(
                f"step {k + 1} is given {what[kind]} instead of what the encoder returned",
                Difference("memory", kind, (k,)),
            )


def width_one_is_greedy(trial: Trial) -> None:
    """A beam of width 1 returns the greedy sequence."""
    results, subject = called(trial), subject_of(trial)
    row, wanted = _row(results), subject.wanted(results)
    if subject.cut(row, results) != wanted:
        raise Violation(
            f"with one beam it returned {row}, greedy gives {wanted}",
            Difference(wanted, row),
        )

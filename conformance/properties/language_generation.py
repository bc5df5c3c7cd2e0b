"""Properties of what decoder-only language models generate by methods of their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ..candidates.errors import CallFailed
from ..engine.cases import OutOfDomain
from ..engine.trial import Difference, Trial, Violation
from .language import as_declared, content_of, subject_of, whole

__all__ = [
    "lm_generates_among_the_best",
    "lm_generates_greedily",
    "lm_generates_length",
    "lm_generates_past_capacity",
    "lm_generates_when_cold",
    "lm_stops",
]

PROMPTS = 12  # from which those are taken that tell most
MANY = 60  # of these, where many a model repeats one token
CERTAIN = 40.0  # with this lead of a logit, another token comes up in 1 of 1e17 draws
COLD = 0.01
ROWS, DRAWS = 4, 60  # of a draw among two, of which the rarer one has a share of a quarter at least
# By such a parameter draws may be the same each time, or the second token left out.
RULED = re.compile(r"seed|rng|generator|top_?p|nucleus|min_?p|typical|penalty", re.IGNORECASE)
LEAD = CERTAIN * COLD


def _greedy(trial: Trial, ids: np.ndarray, n: int) -> np.ndarray:
    """(B, n) tokens: n times the argmax of the model's own last logits, over the last max_len tokens.

    Raises OutOfDomain where two logits are too close to tell which is greater.
    """
    tokens, leads = _leading(trial, ids, n)
    if not _clear(trial, leads).all():
        raise trial.skip("two logits are almost equal")
    return tokens


def _clear(trial: Trial, leads: np.ndarray) -> np.ndarray:
    """Which rows (B,) leave no doubt about any token: the greatest logit leads, by much where tokens are drawn."""
    generator = subject_of(trial).generator
    least = CERTAIN if generator is not None and generator.sharp else 1e-4
    return np.all(leads >= least, axis=1)


def _leading(trial: Trial, ids: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of a greedy continuation (B, n), and by how much the logit of each one leads (B, n)."""
    room = trial.case["max_len"] if trial.subject.has("parameter max_len") else 10**6
    found, leads = ids, np.zeros((len(ids), 0))
    for _ in range(n):
        last = whole(trial, found[:, -room:])[:, -1]
        if last.ndim != 2 or last.shape[1] != trial.case["V"]:
            raise trial.skip("the logits have another shape")
        leads = np.concatenate([leads, subject_of(trial).lead(last)[:, None]], axis=1)
        found = np.concatenate([found, last.argmax(axis=-1)[:, None]], axis=1)
    return found[:, ids.shape[1] :], leads


def _generated(trial: Trial, ids: np.ndarray, n: int, **options: Any) -> np.ndarray:
    """What the candidate's own method returns for a prompt, (B, ·)."""
    subject = subject_of(trial)
    generator = subject.generator
    # Each claim has an object of its own: what another claim generated leaves no trace in it.
    own = subject.generating(trial.case, f"generating for {trial.claim.id}")
    call = replace(subject.generation(ids, n, trial.case, **options), built=own)
    subject.last_calls = (call,)
    trial.shown = {"prompt": ids, "n": n}
    one = generator is not None and generator.single
    if (subject.unbatched or one) and len(ids) > 1:
        return _one_by_one(trial, ids, n, **options)
    answer = subject.session.calls([call])[0]
    if (
        isinstance(answer, CallFailed)
        and answer.kind == "exception"
        and len(ids) > 1
        and options.get("use_cache")
    ):
        return _one_by_one(trial, ids, n, **options)  # its cache may have room for one prompt
    tokens = subject.tokens(answer, len(ids))
    _not_ended(trial, ids, n, tokens)
    return tokens


def _one_by_one(trial: Trial, ids: np.ndarray, n: int, **options: Any) -> np.ndarray:
    """What it returns for each prompt by itself, (B, ·)."""
    rows = [_generated(trial, ids[b : b + 1], n, **options) for b in range(len(ids))]
    if len({row.shape for row in rows}) > 1:
        raise Violation("for prompts of one length it returned different numbers of tokens")
    return np.concatenate(rows)


def _not_ended(trial: Trial, ids: np.ndarray, n: int, tokens: np.ndarray) -> None:
    """Raises OutOfDomain where a text is short since it came to an id at which it ends of its own accord."""
    subject, T = subject_of(trial), ids.shape[1]
    behind = np.array_equal(tokens[:, :T], ids)
    if tokens.shape[1] >= T + n or (tokens.shape[1] == n and not behind):
        return
    with trial.aside():
        end = subject.ends_itself(trial.case)
        new = tokens[:, T:] if behind else tokens
        if end is None:
            return
        token, kept = end
        last = new[:, -1:] if kept else whole(trial, np.concatenate([ids, new], axis=1))[:, -1:].argmax(-1)
    if last.size and (last == token).all():
        raise trial.skip("it ends of its own accord")


def _paths(trial: Trial) -> list[dict[str, object]]:
    """What to pass for each path through the generating method: without a cache and with it, where it has both."""
    generator = subject_of(trial).generator
    if generator is None or "use_cache" not in generator.arguments:
        return [{}]
    return [{"use_cache": False}, {"use_cache": True}]


def _path(options: dict[str, object]) -> str:
    """The path in words, where there are two."""
    return "".join(f"with {name}={value}, " for name, value in options.items())


def _new(ids: np.ndarray, n: int, tokens: np.ndarray) -> np.ndarray:
    """The new tokens in what was returned: after the prompt, or alone.

    Raises Violation where the length fits none of these, or the prompt was changed.
    """
    T = ids.shape[1]
    length = tokens.shape[1]
    kept = length >= T and np.array_equal(tokens[:, :T], ids)
    accepted = {T + n: "the prompt and the new tokens", n: "the new tokens alone"}
    if length not in accepted:
        told = " or ".join(f"{size} ({meaning})" for size, meaning in accepted.items())
        raise Violation(
            f"for a prompt of {T} tokens and n = {n} it returned {length} tokens, expected {told}",
            Difference(list(accepted), length),
        )
    if length == T + n:
        if not kept:
            b = int(np.argwhere((tokens[:, :T] != ids).any(axis=1))[0, 0])
            raise Violation(
                f"what it returned does not begin with the prompt (row {b})",
                Difference(ids[b].tolist(), tokens[b, :T].tolist()),
            )
        return tokens[:, T:]
    return tokens


def lm_generates_length(trial: Trial) -> None:
    """The prompt unchanged in front (or left out), and exactly n new tokens, all of the vocabulary."""
    as_declared(trial)
    ids, n = content_of(trial), trial.case["n"]
    for options in _paths(trial):
        new = _new(ids, n, _generated(trial, ids, n, **options))
        if new.size and (new.min() < 0 or new.max() >= trial.case["V"]):
            raise Violation(
                f"it generated ids outside of the vocabulary of {trial.case['V']}",
                Difference(f"0 to {trial.case['V'] - 1}", new.tolist()),
            )


def _same_tokens(trial: Trial, ids: np.ndarray, expected: np.ndarray, new: np.ndarray, how: str = "") -> None:
    """New tokens against the expected ones, as far as there are some.  Raises Violation."""
    count = min(expected.shape[1], new.shape[1])
    wrong = np.argwhere(expected[:, :count] != new[:, :count])
    if len(wrong):
        b, t = min(((int(b), int(t)) for b, t in wrong), key=lambda place: (place[1], place[0]))
        prefix = [*ids[b].tolist(), *expected[b, :t].tolist()]
        with trial.aside():
            reading = _reading(trial, ids, new[:, :count])
        raise Violation(
            f"{how}new token {t + 1} of row {b} is {new[b, t]}, expected {expected[b, t]}: "
            f"the model's own logits are greatest there after {prefix}{reading}",
            Difference(expected[b].tolist(), new[b].tolist(), (t,)),
        )


def _reading(trial: Trial, ids: np.ndarray, new: np.ndarray) -> str:
    """Which wrong way of reading the text gives all the tokens that were generated; empty if none does."""
    room = trial.case["max_len"] if trial.subject.has("parameter max_len") else 10**6
    T = ids.shape[1]
    texts = [np.concatenate([ids, new[:, :t]], axis=1) for t in range(new.shape[1])]
    if (new == new[:, :1]).all():
        return ""  # one token again and again: many a reading gives that

    def twice(text: np.ndarray) -> np.ndarray:
        pairs = [text[:, t - 1 : t + 1] for t in range(T, text.shape[1])]
        return np.concatenate([text[:, :T], *pairs], axis=1)

    readings: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        f"the oldest {room} tokens": lambda text: text[:, :room],
        f"the newest {room - 1} tokens": lambda text: text if text.shape[1] <= room else text[:, 1 - room :],
        f"the newest {room - 1} tokens as soon as there are {room}": lambda text: text[:, 1 - room :],
        "all but the newest token": lambda text: text[:, :-1][:, -room:] if text.shape[1] > 1 else text,
        "the text backwards": lambda text: text[:, -room:][:, ::-1],
        "the text in which the token before each new one stands twice": lambda text: twice(text)[:, -room:],
        "the newest token alone": lambda text: text if text.shape == ids.shape else text[:, -1:],
    }
    try:
        logits = [whole(trial, text[:, -room:])[:, -1] for text in texts]
        if all((last.argmin(axis=-1) == new[:, t]).all() for t, last in enumerate(logits)):
            return "; they are the least probable ones"
        if len(ids) > 1 and all((last[0].argmax() == new[:, t]).all() for t, last in enumerate(logits)):
            return "; they are those of row 0, in each row"
        for what, read in readings.items():
            if all((whole(trial, read(x))[:, -1].argmax(-1) == new[:, t]).all() for t, x in enumerate(texts)):
                return f"; they are what it says after {what}"
    except CallFailed:
        pass
    return ""


def _only_greedy(trial: Trial) -> None:
    generator = subject_of(trial).generator
    if generator is None or generator.draws:
        raise trial.skip("it draws its tokens, and nothing makes it take the most probable one")


def lm_generates_greedily(trial: Trial) -> None:
    """Each new token is the argmax of the model's own logits over its own prefix."""
    as_declared(trial)
    _only_greedy(trial)
    ids, n = content_of(trial), trial.case["n"]
    if not _clear(trial, _leading(trial, ids, n)[1]).all():
        others = subject_of(trial).draw_ids(trial.case.replaced(B=PROMPTS))
        ids = others[_clear(trial, _leading(trial, others, n)[1])][: trial.case["B"]]
        if not len(ids):
            raise trial.skip("two logits are almost equal")
    expected = _greedy(trial, ids, n)
    for options in _paths(trial):
        _same_tokens(trial, ids, expected, _new(ids, n, _generated(trial, ids, n, **options)), _path(options))


def lm_generates_when_cold(trial: Trial) -> None:
    """At a temperature near 0 each new token is the argmax, where that one leads clearly."""
    as_declared(trial)
    subject, n = subject_of(trial), trial.case["n"]
    generator = subject.generator
    if generator is None or "temperature" not in generator.arguments:
        raise trial.skip("it takes no temperature")
    ids = subject.draw_ids(trial.case.replaced(B=PROMPTS))
    expected, leads = _leading(trial, ids, n)
    clear = np.flatnonzero((leads > LEAD).all(axis=1))[: trial.case["B"]]
    if not len(clear):
        raise trial.skip("no logit leads clearly")
    ids, expected, leads = ids[clear], expected[clear], leads[clear]
    cold = {"do_sample": True, "greedy": False, "top_k": trial.case["V"], "temperature": COLD}
    for options in _paths(trial):
        try:
            tokens = _generated(trial, ids, n, **{**cold, **options})
        except CallFailed as error:
            if error.refuses:
                raise trial.skip("it refuses a temperature near 0") from None
            raise
        new = _new(ids, n, tokens)
        for b, t in np.argwhere(new != expected)[:1].tolist():
            turned = False
            with trial.aside(), suppress(CallFailed, OutOfDomain, Violation):  # it need not answer to this
                hot = {**cold, **options, "temperature": 1 / COLD}
                turned = np.array_equal(_new(ids, n, _generated(trial, ids, n, **hot)), expected)
            lead, name = float(leads[b, t]), generator.arguments["temperature"].name
            raise Violation(
                f"{_path(options)}with {name} = {COLD}, new token {t + 1} of row {b} is {new[b, t]}, expected "
                f"{expected[b, t]}, whose logit leads by {lead:.3f}, and divided by {COLD} by {lead / COLD:.1f}"
                + (f"; but at {1 / COLD:g} it comes, as if logits were multiplied" if turned else ""),
                Difference(expected[b].tolist(), new[b].tolist(), (t,)),
            )


def lm_generates_among_the_best(trial: Trial) -> None:
    """With top_k = 2 the two most probable tokens of each row come up, and no other."""
    as_declared(trial)
    subject, case = subject_of(trial), trial.case
    generator = subject.generator
    if generator is None or "top_k" not in generator.arguments:
        raise trial.skip("it takes no top_k")
    ids = subject.draw_ids(case.replaced(B=MANY))
    scores = subject.scores(whole(trial, ids))[:, -1]
    order = np.argsort(-scores, axis=-1)
    first, second, third = (np.take_along_axis(scores, order[:, n : n + 1], 1)[:, 0] for n in range(3))
    # The second comes in at least a quarter of the draws, and nobody takes it for the third, or for the first.
    clear = np.flatnonzero((first - second < 1.0) & (first - second > 1e-3) & (second - third > 1e-3))
    if len(clear) < 2:
        raise trial.skip("no two tokens are about as probable, and more so than all others")
    clear = clear[np.argsort(second[clear])]
    rows = clear[
        np.linspace(0, len(clear) - 1, min(ROWS, len(clear))).astype(int)
    ]  # of very different logits
    best, ids = order[rows, :2], ids[rows]
    name = generator.arguments["top_k"].name
    options = {"do_sample": True, "greedy": False, "temperature": 1.0, "top_k": 2}
    one = subject.unbatched or generator.single
    own = subject.generating(case, f"generating for {trial.claim.id}")
    prompts = [ids[b : b + 1] for b in range(len(ids))] if one else [ids]
    calls = [replace(subject.generation(p, 1, case, **options), built=own) for p in prompts]
    subject.last_calls = (calls[0],)
    trial.shown = {"prompt": ids, name: 2}
    answers = subject.session.calls([call for call in calls for _ in range(DRAWS)])
    try:
        drawn = [
            _new(p, 1, subject.tokens(a, len(p)))
            for p, a in zip(np.repeat(prompts, DRAWS, 0), answers, strict=True)
        ]
    except CallFailed as error:
        if error.refuses:
            raise trial.skip(f"it refuses {name} = 2") from None
        raise
    tokens = np.stack(drawn).reshape(len(prompts), DRAWS, -1).swapaxes(1, 2).reshape(len(ids), DRAWS)
    for b, row in enumerate(tokens):
        others = row[~np.isin(row, best[b])]
        if len(others):
            rank = int(np.flatnonzero(order[rows[b]] == others[0])[0]) + 1
            raise Violation(
                f"with {name} = 2, row {b} went on with a token that is not among the two most probable ones, "
                f"{best[b].tolist()}, in {len(others)} of {DRAWS} draws: {others[0]} has rank {rank}",
                Difference(best[b].tolist(), sorted(set(row.tolist()))),
            )
    if (tokens == best[:, :1]).all() and not RULED.search(" ".join(p["name"] for p in _asked(trial))):
        raise Violation(
            f"with {name} = 2, the most probable token came each time, in {tokens.size} draws for {len(ids)} prompts, "
            "though the second one is at least a third as probable as the first",
            Difference("both", "the first alone"),
        )


def _asked(trial: Trial) -> list[Any]:
    """The parameters of the method that generates."""
    subject = subject_of(trial)
    assert subject.generator is not None
    return list(subject.binding.entry["methods"][subject.generator.method] or ())


def _changing(trial: Trial, n: int) -> np.ndarray:
    """(B, T) prompts, of several those whose continuation changes most from where max_len is reached.

    Where a text only repeats one token, tokens of the wrong part of it show nothing.
    """
    case = trial.case
    ids = subject_of(trial).draw_ids(case.replaced(B=MANY))
    tokens, leads = _leading(trial, ids, n)
    changes = (np.diff(tokens[:, max(case["max_len"] - ids.shape[1], 0) :], axis=1) != 0).sum(axis=1)
    changes = np.where(_clear(trial, leads), changes, -1)
    return ids[np.argsort(-changes, kind="stable")[: case["B"]]]


def lm_generates_past_capacity(trial: Trial) -> None:
    """Beyond max_len, on each path: refused, ended there, or by the last max_len tokens."""
    as_declared(trial)
    _only_greedy(trial)
    n, room = trial.case["n"], trial.case["max_len"]
    ids = _changing(trial, n)
    T = ids.shape[1]
    for options in _paths(trial):
        try:
            tokens = _generated(trial, ids, n, **options)
        except CallFailed as error:
            if error.kind == "exception":
                continue
            raise
        with trial.aside():
            expected = _greedy(trial, ids, n)
        if room <= tokens.shape[1] < T + n and np.array_equal(tokens[:, :T], ids):
            new = tokens[:, T:]  # it ended when it was full
        else:
            new = _new(ids, n, tokens)
        _same_tokens(trial, ids, expected, new, _path(options))


def lm_stops(trial: Trial, where: str) -> None:
    """At a generated EOS it ends; at one in the prompt it does not."""
    as_declared(trial)
    _only_greedy(trial)
    generator = subject_of(trial).generator
    if generator is None or "eos" not in generator.arguments:
        raise trial.skip("it takes no id at which to stop")
    ids, n = content_of(trial)[:1], trial.case["n"]
    expected = _greedy(trial, ids, n)[0].tolist()
    if where != "prompt" and not _told(expected):
        for other_ids in subject_of(trial).draw_ids(trial.case.replaced(B=PROMPTS))[:, None]:
            told = _greedy(trial, other_ids, n)[0].tolist()
            if _told(told):
                ids, expected = other_ids, told
                break
    for options in _paths(trial):
        _stops(trial, where, ids, expected, options)


def _told(tokens: list[int]) -> list[int]:
    """Where a token comes for the first time, and another after it: if that one is EOS, going on shows."""
    return [t for t in range(len(tokens) - 1) if tokens[t] not in tokens[:t] and tokens[t + 1] != tokens[t]]


def _stops(
    trial: Trial, where: str, ids: np.ndarray, expected: list[int], options: dict[str, object]
) -> None:
    T, n = ids.shape[1], trial.case["n"]
    if where == "prompt":
        unused = [int(token) for token in ids[0] if token not in expected]
        if not unused:
            raise trial.skip("every token of the prompt is generated as well")
        tokens = _generated(trial, ids, n, eos=unused[0], **options)
        if tokens.shape[1] in (T, 0) and n:
            raise Violation(
                f"the prompt {ids[0].tolist()} holds the id {unused[0]} at which to stop, and nothing was generated",
                Difference(expected, []),
            )
        short = T <= tokens.shape[1] < T + n and np.array_equal(tokens[:, :T], ids)
        if short and T > 1 and tokens[0, -n:].tolist() != expected:
            raise Violation(
                f"the prompt {ids[0].tolist()} holds the id {unused[0]} at which to stop, and generation ended after "
                f"{tokens.shape[1] - T} tokens",
                Difference(expected, tokens[0, T:].tolist()),
            )
        new = _new(ids, n, tokens)
        stopped = np.argwhere(new[0] != np.array(expected[: new.shape[1]]))
        if len(stopped) and (new[0, stopped[0, 0] :] == unused[0]).all():
            raise Violation(
                f"the prompt {ids[0].tolist()} holds the id {unused[0]} at which to stop, and it generated only "
                f"that after {stopped[0, 0]} tokens",
                Difference(expected, new[0].tolist(), (int(stopped[0, 0]),)),
            )
        _same_tokens(trial, ids, np.array([expected]), new, _path(options))
        return
    eos = expected[min(_told(expected), key=lambda t: abs(t - n // 2), default=n // 2)]
    end = expected.index(eos)
    tokens = _generated(trial, ids, n, eos=eos, **options)[0].tolist()
    new = tokens[T:] if tokens[:T] == ids[0].tolist() else tokens
    rest = new[end + 1 :]
    if (
        new[:end] != expected[:end]
        or (len(new) > end and new[end] != eos)
        or len(set(rest)) > 1
        or len(new) > n
    ):
        raise Violation(
            f"the new tokens are {new}; the id {eos}, at which to stop, comes after {end} of them",
            Difference([*expected[:end], eos], new),
        )
    if rest and rest[0] != eos and len(new) != n:
        raise Violation(
            f"it went on after the id {eos}, at which to stop: {new}", Difference([*expected[:end], eos], new)
        )
    if rest and rest == expected[end + 1 : end + 1 + len(rest)] and len(rest) > 0 and rest[0] != eos:
        raise Violation(
            f"it went on after the id {eos}, at which to stop: {new}", Difference([*expected[:end], eos], new)
        )

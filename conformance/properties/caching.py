"""Properties of caches: fed in pieces, a model gives what one pass over everything gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..candidates.caching import CachingSubject
from ..candidates.errors import CallFailed
from ..candidates.feeds import compositions
from ..candidates.language_generation import LanguageSubject
from ..candidates.session import Call
from ..engine.trial import Difference, Trial, Violation
from .language import as_declared, beyond_capacity, content_of, near, other, whole

__all__ = [
    "cache_capacity",
    "cache_forgets",
    "cache_mask_within",
    "cache_new_memory",
    "cache_positions",
    "cache_reaches_back",
    "cached_equals_full",
]

MOVED = 1e-7


def _subject(trial: Trial) -> CachingSubject:
    assert isinstance(trial.subject, CachingSubject)
    return trial.subject


def _several(trial: Trial) -> None:
    feed = _subject(trial).feed
    if feed is not None and feed.single:
        raise trial.skip("it takes one token at a time")


def _expected(trial: Trial, content: np.ndarray, first: int, last: int) -> np.ndarray:
    """What the full pass gives for positions first to last − 1; the last of them alone, where that is its answer."""
    subject = _subject(trial)
    if isinstance(subject, LanguageSubject) and subject.form == "last":
        return whole(trial, content[:, :last])
    return whole(trial, content)[:, first:last]


def _compare(
    trial: Trial,
    content: np.ndarray,
    sizes: Sequence[int],
    outputs: Sequence[np.ndarray],
    chain: Sequence[tuple[Call, ...]],
    how: str,
) -> None:
    """The pieces' outputs against the full pass, in shape and in numbers."""
    start = 0
    for n, (size, observed) in enumerate(zip(sizes, outputs, strict=True)):
        expected = _expected(trial, content, start, start + size)
        trial.subject.last_calls = chain[n]
        if expected.shape != (len(content), *expected.shape[1:]):
            raise trial.skip("the full pass has another shape")
        tokens = f"position {start}" if size == 1 else f"positions {start} to {start + size - 1}"
        what = f"{how}, the output of {'the first' if not n else 'a later'} piece ({tokens})"
        if observed.shape != expected.shape:
            raise Violation(
                f"{what} has shape {list(observed.shape)}, expected {list(expected.shape)}",
                Difference(str(list(expected.shape)), str(list(observed.shape))),
            )
        trial.same(observed, expected, f"{what} differs from the full pass", near(trial, expected))
        start += size


def _cut(sizes: Sequence[int]) -> str:
    return "fed in pieces of " + " + ".join(map(str, sizes))


def cached_equals_full(trial: Trial, chunks: str) -> None:
    """One token at a time, the prompt and then single tokens, or every chunking."""
    as_declared(trial)
    content = content_of(trial)
    T = content.shape[1]
    if chunks != "ones":
        _several(trial)
    ways: list[tuple[int, ...]] = {
        "ones": [(1,) * T],
        "prompt": [(n,) + (1,) * (T - n) for n in range(2, T)],
        "all": compositions(T),
    }[chunks]
    trial.shown = {_subject(trial).content: content}
    subject = _subject(trial)
    found = subject.pieces(content, trial.case, *ways, anew=chunks == "ones")
    for sizes, outputs, chain in zip(ways, found, list(subject.chains), strict=True):
        how = "fed one token at a time" if chunks == "ones" else _cut(sizes)
        _compare(trial, content, sizes, outputs, chain, how)


def cache_reaches_back(trial: Trial) -> None:
    """A change in the first piece changes the outputs of the pieces after it."""
    as_declared(trial)
    content = content_of(trial)
    T = content.shape[1]
    first = T - 2
    sizes = (first, 1, 1)
    changes = []
    for j in range(first):
        changed = content.copy()
        changed[:, j] = other(trial, content[:, j])
        changes.append(changed)
    subject = _subject(trial)
    fed = [(c, sizes) for c in (content, *changes)]
    before, *after = subject.sequences(trial.case, *fed, anew=True)
    for j, outputs in enumerate(after):
        for n in (1, 2):
            moved = np.abs(outputs[n] - before[n]) if outputs[n].shape == before[n].shape else np.ones(1)
            if not moved.max() > MOVED:
                trial.shown = {subject.content: content}
                raise Violation(
                    f"the token at position {j}, in the first piece, was changed, but the output at position "
                    f"{first + n - 1}, fed later, did not change: what is cached is not used",
                    Difference("a change", f"a change of {moved.max():.3g}", (first + n - 1, j)),
                )


def cache_positions(trial: Trial) -> None:
    """The same token again and again: where the full pass tells its positions apart, the cached one must too."""
    as_declared(trial)
    content = content_of(trial).copy()
    content[:] = content[:, :1]
    T = content.shape[1]
    full = np.concatenate([_expected(trial, content, t, t + 1) for t in range(T)], axis=1)
    apart = np.abs(np.diff(full, axis=1)).max(axis=(0, 2))  # (T − 1,)
    if not (apart > 1e-3).all():
        raise trial.skip("equal tokens look the same to it at every position")
    outputs = _subject(trial).pieces(content, trial.case, (1,) * T, anew=True)[0]
    stuck = [
        t for t in range(1, T)
        if outputs[t].shape == outputs[t - 1].shape and np.abs(outputs[t] - outputs[t - 1]).max() < 1e-6
    ]  # fmt: skip
    if stuck:
        trial.shown = {_subject(trial).content: content}
        where = "every later position" if len(stuck) == T - 1 else f"position {' and '.join(map(str, stuck))}"
        raise Violation(
            f"the same token was fed {T} times, one at a time; its output at {where} is that of the "
            "position before, though in the full pass they differ: positions do not continue after what is cached",
            Difference(f"a difference of {apart[stuck[0] - 1]:.3g}, as in the full pass", "no difference"),
        )


def cache_mask_within(trial: Trial) -> None:
    """In a later piece of several tokens, a change of its last token leaves the outputs before it as they were."""
    as_declared(trial)
    _several(trial)
    content = content_of(trial)
    T = content.shape[1]
    changed = content.copy()
    changed[:, -1] = other(trial, content[:, -1])
    subject = _subject(trial)
    for first in range(1, T - 1):
        sizes = (first, T - first)
        before, after = subject.sequences(trial.case, (content, sizes), (changed, sizes))
        if before[1].shape != after[1].shape or before[1].shape[:2] != (len(content), T - first):
            raise trial.skip("a later piece is not answered for every token")
        trial.shown = {subject.content: content}
        what = (
            f"after {first} cached token{'s' if first > 1 else ''} a piece of {T - first} was fed; when its last token "
            "is changed, the output before that token [row, token of the piece, …]"
        )
        trial.same(after[1][:, :-1], before[1][:, :-1], what, near(trial, before[1]))


def cache_forgets(trial: Trial) -> None:
    """Another sequence first, then the content from the beginning."""
    as_declared(trial)
    content = content_of(trial)
    T = content.shape[1]
    stranger = other(trial, content)[:, : T - 1]
    sizes = (1,) * T
    subject = _subject(trial)
    fed = [(stranger, sizes[1:]), (content, sizes), (content, sizes)]
    outputs = subject.sequences(trial.case, *fed)
    chains = list(subject.chains)
    trial.shown = {subject.content: content, "before": stranger}
    for n, order in ((1, "after another sequence"), (2, "after the same sequence")):
        _compare(
            trial, content, sizes, outputs[n], chains[n], f"begun anew {order} and fed one token at a time"
        )


def cache_new_memory(trial: Trial) -> None:
    """A sequence with one memory, then one with another, against an object that knows the other memory alone."""
    as_declared(trial)
    content, subject = content_of(trial), _subject(trial)
    sizes = (1,) * content.shape[1]
    old = trial.case.replaced(seed=trial.case["seed"] + 1)
    expected, former = (subject.anew(content, case) for case in (trial.case, old))
    if np.abs(expected - former).max() < 1e-3:
        raise trial.skip("the memory makes no difference to it")
    trial.shown = {subject.content: content}
    one = subject.another(trial.case)
    for case, right in ((old, former), (trial.case, expected)):
        outputs = subject.pieces(content, case, sizes, on=one)[0]
        subject.last_calls = subject.chains[0][-1]
        for t, observed in enumerate(outputs):
            what = f"begun anew with another memory and fed one token at a time, the output at position {t}"
            trial.same(observed, right[:, t : t + 1], what, near(trial, right))


def cache_capacity(trial: Trial) -> None:
    """One token beyond max_len through the cache: an error, or right."""
    as_declared(trial)
    content = content_of(trial)
    T = content.shape[1]
    subject = _subject(trial)
    try:
        outputs = subject.pieces(content, trial.case, (T - 2, 1, 1))[0]
    except CallFailed as error:
        if error.kind == "exception":
            return
        raise
    trial.shown = {subject.content: content}
    beyond_capacity(trial, content, outputs[-1], f"with a cache and max_len = {trial.case['max_len']}")

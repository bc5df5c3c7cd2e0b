"""Properties of decoder-only language models: ids in, logits out."""

from __future__ import annotations

import numpy as np

from ..candidates.caching import CachingSubject
from ..candidates.errors import CallFailed
from ..candidates.language_generation import LanguageSubject
from ..engine.cases import Inputs, Unseen, change
from ..engine.pictures import changed_outputs, leak
from ..engine.trial import Difference, Trial, Violation

__all__ = [
    "lm_batch",
    "lm_capacity",
    "lm_ids_refused",
    "lm_loss",
    "lm_no_future",
    "lm_order",
    "lm_padding",
    "lm_prefix",
    "lm_reaches",
    "lm_shape",
    "lm_targets",
]

MOVED = 1e-7


def subject_of(trial: Trial) -> LanguageSubject:
    assert isinstance(trial.subject, LanguageSubject)
    return trial.subject


# what these and the cache's properties share


def _tries_a_layout(trial: Trial) -> bool:
    return trial.subject.conventions.get("layout", ("", ""))[1] == "tried"


def as_declared(trial: Trial) -> None:
    """Skip what cannot tell a layout: where another is tried, an error that is right here would speak for it."""
    if _tries_a_layout(trial):
        raise trial.skip("it tells nothing about the layout")


def content_of(trial: Trial) -> np.ndarray:
    """(B, T) ids, or (B, T, d) vectors: what the subject is fed."""
    assert isinstance(trial.subject, CachingSubject)
    return trial.inputs[trial.subject.content]


def whole(trial: Trial, content: np.ndarray) -> np.ndarray:
    """The output of one pass over everything."""
    assert isinstance(trial.subject, CachingSubject)
    return trial.call(Inputs(trial.case, {trial.subject.content: content}))["output"]


def other(trial: Trial, content: np.ndarray) -> np.ndarray:
    """Another content at every place: the next id but 0, or another vector."""
    if content.dtype.kind == "i":
        return 1 + content % (trial.case["V"] - 1)
    return content + change(trial.case.rng, content.shape, 2.0, 1.0)


def near(trial: Trial, values: np.ndarray) -> float:
    """The error allowed: correct implementations differ by 2e-6 of the size, wrong ones by 5e-4 and more."""
    finite = np.abs(values[np.isfinite(values)])
    return getattr(trial.subject, "limit", 2e-5) * max(1.0, float(finite.max()) if finite.size else 1.0)


def beyond_capacity(trial: Trial, content: np.ndarray, observed: np.ndarray, how: str) -> None:
    """Logits for one token beyond max_len came back: they must be those of the same model with room for it.

    Where a table of positions ends at max_len there is no such model, and an answer without an error is wrong.
    """
    case, subject = trial.case, trial.subject
    assert isinstance(subject, CachingSubject)
    T, room = content.shape[1], case["max_len"]
    if subject.convention("overflow") == "window":
        expected = whole(trial, content[:, -room:])
        rows = min(expected.shape[1], observed.shape[1]) if observed.ndim == 3 else 1
        what = f"{how}, {T} tokens were given; the logits of the last {room}"
        trial.same(observed[:, -rows:], expected[:, -rows:], what, near(trial, expected))
        return
    if observed.ndim == 3 and 1 < observed.shape[1] < T:
        raise Violation(
            f"{how}, {T} tokens were given, and there was no error, but logits for {observed.shape[1]} alone",
            Difference("an error", f"a result of shape {list(observed.shape)}"),
        )
    larger = case.replaced(max_len=room + 4)
    sizes = [
        {item["name"]: item["value"].values.shape for item in subject.session.parameters(subject.weighted(c))
         if item["trainable"] or item.get("kind") == "parameter"}
        for c in (case, larger)
    ]  # fmt: skip
    if sizes[0] != sizes[1]:
        raise Violation(
            f"{how}, {T} tokens were given, more than it has positions for, and there was no error",
            Difference("an error", f"a result of shape {list(observed.shape)}"),
        )
    expected = subject.call(Inputs(larger, {subject.content: content}))["output"]
    if observed.ndim != expected.ndim or observed.shape[0] != expected.shape[0]:
        raise Violation(
            f"{how}, {T} tokens gave a result of shape {list(observed.shape)}, and no error",
            Difference("an error", f"a result of shape {list(observed.shape)}"),
        )
    rows = T if observed.shape[1] != 1 else 1
    what = f"{how}, {T} tokens gave no error; against the same model with more room, the logits"
    trial.same(observed, expected[:, -rows:], what, near(trial, expected))


# one pass


def lm_shape(trial: Trial) -> None:
    """(B, T, V); (B, 1, V) from a model that answers for the last position only."""
    as_declared(trial)
    case = trial.case
    expected = (case["B"], case["T"] if subject_of(trial).has("every position") else 1, case["V"])
    observed = trial.call()["output"]
    if observed.shape != expected:
        raise Violation(
            f"for ids of shape [{case['B']}, {case['T']}] and a vocabulary of {case['V']} the shape is "
            f"{list(observed.shape)}, expected {list(expected)}",
            Difference(str(list(expected)), str(list(observed.shape))),
        )
    if not np.isfinite(observed).all():
        raise Violation("the logits are not finite", Difference("finite numbers", "NaN or infinity"))


def _together(trial: Trial, contents: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs for several contents, their calls in one frame."""
    trial.subject.prefetch([Inputs(trial.case, {"ids": ids}) for ids in contents])
    return [whole(trial, ids) for ids in contents]


def lm_no_future(trial: Trial) -> None:
    """Other tokens from j on leave the logits before j as they were."""
    if _tries_a_layout(trial):  # with time taken for the batch nothing leaks, and nothing is passed on either
        lm_reaches(trial)
    ids = content_of(trial)
    if not subject_of(trial).has("every position"):
        raise Unseen(
            "it answers for the last position only, and the last position may see every token: "
            "whether earlier ones look ahead does not show"
        )
    T = ids.shape[1]
    changes = []
    places = range(1, T)
    for j in places:
        changed = ids.copy()
        changed[:, j:] = other(trial, ids[:, j:])
        changes.append(changed)
    before, *after = _together(trial, [ids, *changes])
    trial.shown = {"ids": ids}
    trial.drawing = lambda: leak(lambda j: _moves(trial, ids, j, before, 1e-5), T)
    for j, output in zip(places, after, strict=True):
        if output.shape != before.shape or before.shape[:2] != ids.shape:
            raise trial.skip("the logits have another shape")
        what = f"when the tokens at positions {j} and later are exchanged, the logits before them"
        trial.same(output[:, :j], before[:, :j], what, near(trial, before))


def _moves(trial: Trial, ids: np.ndarray, j: int, before: np.ndarray, size: float) -> np.ndarray:
    changed = ids.copy()
    changed[:, j] = other(trial, ids[:, j])
    return changed_outputs(whole(trial, changed), before, size)


def lm_reaches(trial: Trial) -> None:
    """Another token at j changes the logits at j and after it."""
    ids = content_of(trial)
    T = ids.shape[1]
    changes = []
    for j in range(T):
        changed = ids.copy()
        changed[:, j] = other(trial, ids[:, j])
        changes.append(changed)
    before, *after = _together(trial, [ids, *changes])
    first = 0 if subject_of(trial).has("every position") else T - 1
    if first == 0:
        trial.drawing = lambda: leak(lambda j: _moves(trial, ids, j, before, MOVED), T, owed=True)
    for j, output in enumerate(after):
        if output.shape != before.shape or before.ndim != 3:
            raise trial.skip("the logits have another shape")
        moved = np.abs(output - before).max(axis=(0, 2))
        for i in range(max(j, first), T):
            if not moved[i - first] > MOVED:
                trial.shown = {"ids": ids}
                raise Violation(
                    f"the token at position {j} was exchanged, but the logits at position {i} did not change",
                    Difference("a change", f"a change of {moved[i - first]:.3g}", (i, j)),
                )


def lm_prefix(trial: Trial) -> None:
    """Logits at t of the full pass = the last logits for the first t + 1 tokens."""
    if _tries_a_layout(trial):  # with time taken for the batch nothing leaks, and nothing is passed on either
        lm_reaches(trial)
    ids = content_of(trial)
    if not subject_of(trial).has("every position"):
        raise trial.skip("it answers for the last position only")
    T = ids.shape[1]
    full, *prefixes = _together(trial, [ids, *(ids[:, :t] for t in range(1, T))])
    trial.shown = {"ids": ids}
    for t, part in enumerate(prefixes):
        what = f"for the first {t + 1} of {T} tokens alone, the last logits against those of the full pass"
        trial.same(part[:, -1:], full[:, t : t + 1], what, near(trial, full))


def lm_batch(trial: Trial) -> None:
    """The batch as a whole, row by row, and reversed."""
    ids = content_of(trial)
    whole_, turned, *alone = _together(trial, [ids, ids[::-1], *(ids[b : b + 1] for b in range(len(ids)))])
    trial.shown = {"ids": ids}
    for b, row in enumerate(alone):
        what = f"row {b} of the batch differs from the same row alone: the logits"
        trial.same(whole_[b : b + 1], row, what, near(trial, row))
    trial.same(turned, whole_[::-1], "after reversing the batch, the logits", near(trial, whole_))


def lm_order(trial: Trial) -> None:
    """Two earlier tokens exchanged: the logits after them change, also in a single layer."""
    case = trial.case
    T = case["T"]
    ids = np.stack([1 + np.random.default_rng([case["seed"], b]).permutation(case["V"] - 1)[:T]
                    for b in range(case["B"])])  # fmt: skip
    pairs = [(i, j) for j in range(1, T - 1) for i in range(j)]
    swapped = []
    for i, j in pairs:
        turned = ids.copy()
        turned[:, [i, j]] = ids[:, [j, i]]
        swapped.append(turned)
    before, *after = _together(trial, [ids, *swapped])
    trial.shown = {"ids": ids}
    for (i, j), output in zip(pairs, after, strict=True):
        moved = float(np.abs(output[:, -1] - before[:, -1]).max())
        if not moved > MOVED:
            raise Violation(
                f"the tokens at positions {i} and {j} were exchanged, but the logits at position {T - 1} "
                "did not change: their positions play no part",
                Difference("a change", f"a change of {moved:.3g}"),
            )


def lm_ids_refused(trial: Trial, which: str) -> None:
    """An id that is none is an error."""
    as_declared(trial)
    ids = content_of(trial).copy()
    bad = trial.case["V"] if which == "large" else -1
    ids[-1, ids.shape[1] // 2] = bad
    trial.shown = {"ids": ids}
    try:
        whole(trial, ids)
    except CallFailed as error:
        if error.kind in ("exception", "result"):
            return
        raise
    raise Violation(
        f"the id {bad} was taken without an error, with a vocabulary of {trial.case['V']} "
        f"(ids 0 to {trial.case['V'] - 1})",
        Difference("an error", "a result"),
    )


def lm_capacity(trial: Trial) -> None:
    """One token too many: refused, or right."""
    as_declared(trial)
    ids = content_of(trial)
    try:
        observed = whole(trial, ids)
    except CallFailed as error:
        if error.kind in ("exception", "result"):
            return
        raise
    trial.shown = {"ids": ids}
    beyond_capacity(trial, ids, observed, f"built with max_len = {trial.case['max_len']}")


def lm_padding(trial: Trial, side: str) -> None:
    """Padding at the end changes nothing; what stands at masked places in front does not matter, and spoils nothing."""
    as_declared(trial)
    subject, case, ids = subject_of(trial), trial.case, content_of(trial)
    B, T = ids.shape
    if not subject.probe_padding(ids, case):
        raise trial.skip("it takes no padding mask of shape (B, T)")
    if not subject.has("every position"):
        raise trial.skip("it answers for the last position only")
    real_counts = [1 + (case["seed"] + b) % (T - 1) for b in range(B)]
    column = np.arange(T)[None, :]
    counts = np.array(real_counts)[:, None]
    if side == "end":
        real = column < counts
        padded = np.where(real, ids, 0)
        observed = trial.call(Inputs(case, {"ids": padded, "real": real}))["output"]
        trial.shown = {"ids": padded, "real": real}
        for b, n in enumerate(real_counts):
            alone = whole(trial, ids[b : b + 1, :n])
            what = (
                f"row {b} has {n} real tokens, then masked padding; against the real ones alone, the logits"
            )
            trial.same(observed[b : b + 1, :n], alone, what, near(trial, alone))
        return
    real = column >= T - counts
    first = trial.call(Inputs(case, {"ids": ids, "real": real}))["output"]
    changed = np.where(real, ids, other(trial, ids))
    second = trial.call(Inputs(case, {"ids": changed, "real": real}))["output"]
    trial.shown = {"ids": ids, "real": real}
    spoilt = real & np.isnan(first).any(axis=-1)
    if side == "finite":
        trial.holds(
            ~spoilt, np.isnan(first).any(axis=-1), "padding in front makes logits of real tokens NaN", False
        )
        return
    if spoilt.any():
        raise trial.skip("real tokens get NaN, which another claim tells")
    what = "when the ids at masked places in front are exchanged, the logits of a real token"
    trial.same(
        second,
        first,
        what,
        near(trial, first),
        np.broadcast_to(real[:, :, None], first.shape),
        equal_nan=True,
    )


# targets and loss


def _with_targets(trial: Trial) -> tuple[np.ndarray, np.ndarray | None, list[float]]:
    """Targets, the logits that come back with them, and what may be the loss."""
    subject, case, ids = subject_of(trial), trial.case, content_of(trial)
    if subject.unbatched:
        raise trial.skip("it takes single sequences")
    rng = np.random.default_rng([case["seed"], 7])
    targets = rng.integers(1, case["V"], ids.shape)
    raw = trial.call(Inputs(case, {"ids": ids, "targets": targets}))["raw"]
    trial.shown = {"ids": ids, "targets": targets}
    return targets, subject.logits_in(raw, ids.shape, case["V"]), subject.losses(raw)


def _logs(values: np.ndarray) -> np.ndarray:
    """Log-probabilities from logits, log-probabilities or probabilities."""
    values = values.astype(np.float64)
    if (values >= 0).all() and np.allclose(values.sum(axis=-1), 1, atol=1e-4):
        return np.log(np.maximum(values, 1e-300))
    values = values - values.max(axis=-1, keepdims=True)
    return values - np.log(np.exp(values).sum(axis=-1, keepdims=True))


def lm_targets(trial: Trial) -> None:
    """Targets are for the loss alone."""
    as_declared(trial)
    if subject_of(trial).with_targets:
        raise trial.skip("without targets it answers for the last position only")
    _, observed, _ = _with_targets(trial)
    if observed is None:
        raise trial.skip("with targets it returns no logits")
    expected = trial.call()["output"]
    if subject_of(trial).convention("values") != "logits":
        observed, expected = _logs(observed), _logs(expected)
    trial.same(
        observed[:, -expected.shape[1] :], expected, "with targets given, the logits", near(trial, expected)
    )


def lm_loss(trial: Trial) -> None:
    """The mean cross-entropy of the logits against the targets, as they are or shifted inside."""
    as_declared(trial)
    targets, logits, losses = _with_targets(trial)
    if logits is None or not losses:
        raise trial.skip("with targets it returns no logits or no loss")
    logs = _logs(logits)
    picked = -np.take_along_axis(logs, targets[..., None], axis=-1)[..., 0]  # (B, T)
    shifted = -np.take_along_axis(logs[:, :-1], targets[:, 1:, None], axis=-1)[..., 0]
    offset = subject_of(trial).conventions.get("label_offset", ("aligned", ""))
    named = subject_of(trial).binding.arguments["targets"].name.lower() in ("labels", "label")
    fitting = {"aligned": [picked], "shifts_inside": [shifted]}[offset[0]]
    if named and offset[1] not in ("declared", "tried"):
        fitting = [picked, shifted]
    means = [float(part.mean()) for part in fitting]
    error = min(abs(loss - mean) for loss in losses for mean in means)
    if not error <= 2e-4 * max(1.0, means[0]):
        known = {
            "their sum": picked.sum(),
            "that of the probabilities, as if they were logits":
                -np.take_along_axis(_logs(np.exp(logs) - 2.0), targets[..., None], axis=-1).mean(),
            "that in bits": picked.mean() / np.log(2),
            "that against targets that are shifted once more": shifted.mean(),
            "its negative": -picked.mean(),
        }  # fmt: skip
        same = [
            f"; it is {how}" for how, value in known.items() if abs(losses[0] - value) <= 2e-4 * abs(value)
        ]
        raise Violation(
            f"the loss is {losses[0]:.6g}, expected {means[0]:.6g}, the mean cross-entropy of the logits "
            f"against the targets{''.join(same[:1])}", Difference(round(means[0], 6), round(losses[0], 6)),
        )  # fmt: skip

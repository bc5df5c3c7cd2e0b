"""Properties of whole models.

``output`` is (B, T, V): scores for every word at every position; T is 1 where a model gives the last alone.
"""

from __future__ import annotations

import re

import numpy as np

from ..candidates.errors import CallFailed
from ..candidates.models import (
    FIRST_WORD,
    SIZES,
    ModelSubject,
    other_words,
)
from ..candidates.names import words
from ..engine.cases import Inputs, Unseen
from ..engine.pictures import changed_outputs, leak
from ..engine.trial import Difference, Trial, Violation

__all__ = [
    "capacity_of_model",
    "ids_refused",
    "logits_shape",
    "order_matters",
    "parallel_is_sequential",
    "rows_independent",
    "saved_and_loaded",
    "scores_not_probabilities",
    "source_padding",
    "source_reaches",
    "target_padding",
    "tokens_reach",
    "tokens_see_no_future",
]


def model_of(trial: Trial) -> ModelSubject:
    assert isinstance(trial.subject, ModelSubject)
    return trial.subject


def outputs_of(trial: Trial, *variants: Inputs) -> list[np.ndarray]:
    """Outputs for several inputs, asked for in one frame."""
    trial.subject.prefetch(variants)
    return [trial.call(inputs)["output"] for inputs in variants]


def error_allowed(trial: Trial, *outputs: np.ndarray) -> float:
    sizes = [np.abs(output[np.isfinite(output)]).max(initial=1.0) for output in outputs]
    return model_of(trial).allowed * float(max(sizes))


def moved_by(trial: Trial, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """How far the scores at each position moved, (B, T)."""
    if before.shape != after.shape:
        raise Violation(
            f"for another token the shape is {list(after.shape)}, before it was {list(before.shape)}"
        )
    moved = np.abs(after - before).max(axis=-1)
    if not np.isfinite(moved).all():
        raise Violation("a score is not a finite number", Difference("a number", "NaN or infinity"))
    return moved


SILENT = {"float64": 1e-10, "float32": 1e-6}


def silent(trial: Trial) -> float:
    """A change up to this is none."""
    return SILENT[model_of(trial).floats]


def _side(trial: Trial) -> str:
    return "the source token" if model_of(trial).source == "src" else "the memory row"


# shapes


def logits_shape(trial: Trial) -> None:
    """(B, T, V), or the form that the model was seen to have."""
    model = model_of(trial)
    B, T = trial.inputs["tgt"].shape
    expected = (B, 1 if model.last_only else T, model.width)
    observed = trial.call()["output"].shape
    if observed != expected:
        raise Violation(
            f"the shape is {list(observed)}, expected {list(expected)}",
            Difference(str(list(expected)), str(list(observed))),
        )


# what reaches what


_ONE_ROW = re.compile(
    r"[(\[](B|N|batch\w*|bsz|1), *(1, *)?(V|vocab\w*|n_vocab|num_words)[)\]]|\b(last|final) (position|token|step)",
    re.IGNORECASE,
)


def _says_last_only(model: ModelSubject) -> bool:
    """Whether the author writes that scores are those of the last position alone."""
    return _ONE_ROW.search(str(model.binding.entry.get("doc", ""))) is not None


def tokens_see_no_future(trial: Trial) -> None:
    """Other tokens at j and later; scores before j stay."""
    model, tgt = model_of(trial), trial.inputs["tgt"]
    if model.last_only:
        if _says_last_only(model):
            raise trial.skip("it returns the scores of the last position alone, as its author says")
        raise Unseen(
            "it returns the scores of the last position alone, and nothing stands after that: "
            "whether it is causal cannot be seen"
        )
    T = tgt.shape[1]
    places = [j for j in dict.fromkeys((1, T // 2, T - 1)) if 1 <= j < T]
    variants = []
    for j in places:
        changed = tgt.copy()
        changed[:, j:] = other_words(changed[:, j:], model.words("tgt"), 1 + j)
        variants.append(trial.inputs.replaced(tgt=changed))
    before, *after = outputs_of(trial, trial.inputs, *variants)
    trial.drawing = lambda: leak(lambda j: _token_moves(trial, model, j, before), T)
    for j, variant, output in zip(places, variants, after, strict=True):
        trial.shown = {"tgt": variant["tgt"]}
        what = f"after the tokens from position {j} on were replaced, the score before it"
        trial.same(output[:, :j], before[:, :j], what, error_allowed(trial, before))


def _token_moves(trial: Trial, model: ModelSubject, j: int, before: np.ndarray) -> np.ndarray:
    changed = trial.inputs["tgt"].copy()
    changed[:, j] = other_words(changed[:, j], model.words("tgt"), 1 + j)
    return changed_outputs(outputs_of(trial, trial.inputs.replaced(tgt=changed))[0], before)


def tokens_reach(trial: Trial) -> None:
    """Another token at j; the scores at every i >= j change."""
    model, tgt = model_of(trial), trial.inputs["tgt"]
    T = tgt.shape[1]
    variants = []
    for j in range(T):
        for step in (1, 3):
            changed = tgt.copy()
            changed[:, j] = other_words(changed[:, j], model.words("tgt"), step)
            variants.append(trial.inputs.replaced(tgt=changed))
    before, *after = outputs_of(trial, trial.inputs, *variants)
    if not model.last_only:
        trial.drawing = lambda: leak(lambda j: _token_moves(trial, model, j, before), T, owed=True)
    for j in range(T):
        moved = np.maximum(*(moved_by(trial, before, o) for o in after[2 * j : 2 * j + 2])).max(axis=0)
        for i in [T - 1] if model.last_only else range(j, T):
            found = float(moved[0 if model.last_only else i])
            if not found > silent(trial):
                trial.shown = {"tgt": variants[2 * j]["tgt"]}
                raise Violation(
                    f"the token at position {j} was replaced, but the scores at position {i} did not change",
                    Difference("a change", f"a change of {found:.3g}", (i, j)),
                )


def source_reaches(trial: Trial) -> None:
    """Another memory row, or source token, at j; the scores at every position change."""
    model = model_of(trial)
    B, S = trial.inputs[model.source].shape[:2]
    variants = [model.disturbed(trial.inputs, np.broadcast_to(np.arange(S) == j, (B, S))) for j in range(S)]
    before, *after = outputs_of(trial, trial.inputs, *variants)
    for j, variant, output in zip(range(S), variants, after, strict=True):
        moved = moved_by(trial, before, output)
        if not (moved > silent(trial)).all():
            b, i = (int(n) for n in np.argwhere(~(moved > silent(trial)))[0])
            trial.shown = {model.source: variant[model.source]}
            raise Violation(
                f"{_side(trial)} {j} was changed, but the scores at position {i} of batch row {b} did not change",
                Difference("a change", f"a change of {moved[b, i]:.3g}", (i, j)),
            )


def parallel_is_sequential(trial: Trial) -> None:
    """The last scores of every prefix against those of the whole target."""
    model, tgt = model_of(trial), trial.inputs["tgt"]
    if model.last_only:
        raise trial.skip("it returns the scores of the last position alone")
    T = tgt.shape[1]
    prefixes = [trial.inputs.replaced(tgt=tgt[:, :t]) for t in range(1, T)]
    whole, *parts = outputs_of(trial, trial.inputs, *prefixes)
    for t, part in enumerate(parts):
        what = f"against one pass over all {T} tokens, the last score of a pass over the first {t + 1}"
        trial.shown = {"tgt": prefixes[t]["tgt"]}
        trial.same(part[:, -1], whole[:, t], what, error_allowed(trial, whole))


def rows_independent(trial: Trial) -> None:
    """The batch as a whole, row by row, and reversed."""
    arrays = {n: v for n, v in trial.inputs.items() if isinstance(v, np.ndarray)}
    B = len(arrays["tgt"])
    if B < 2:
        raise trial.skip("one row is no batch")
    rows = [trial.inputs.replaced(**{n: v[b : b + 1] for n, v in arrays.items()}) for b in range(B)]
    turned = trial.inputs.replaced(**{n: v[::-1].copy() for n, v in arrays.items()})
    whole, back, *alone = outputs_of(trial, trial.inputs, turned, *rows)
    allowed = error_allowed(trial, whole)
    for b, row in enumerate(alone):
        what = f"row {b} of the batch differs from the same row alone: the score"
        trial.same(whole[b : b + 1], row, what, allowed)
    trial.same(back, whole[::-1], "after reversing the batch, the score", allowed)


def order_matters(trial: Trial, side: str) -> None:
    """Two tokens are exchanged; the last scores change."""
    model = model_of(trial)
    if model.takes != "ids":
        raise trial.skip("it takes vectors, so positions are not its business")
    if not any(
        _positional(item["name"]) for item in model.session.parameters(model.built(trial.case, model.double))
    ):
        raise trial.skip("no parameter or buffer of it is called positions")
    moved = np.zeros(0)
    for one in range(3):  # words whose scores are far below the others' hide what their places do
        ids = trial.inputs[side].copy()
        ids[:, 0], ids[:, 1] = FIRST_WORD + one, FIRST_WORD + one + 1
        swapped = ids.copy()
        swapped[:, [0, 1]] = ids[:, [1, 0]]
        before, after = outputs_of(
            trial, trial.inputs.replaced(**{side: ids}), trial.inputs.replaced(**{side: swapped})
        )
        moved = np.append(moved, moved_by(trial, before, after)[:, -1])
        trial.shown = {side: swapped}
    if not (moved > max(silent(trial), 1e-6)).any():
        what = "source" if side == "src" else "target"
        raise Violation(
            f"the first two tokens of the {what} were exchanged, but the last scores did not change",
            Difference("a change", f"a change of {moved.max():.3g}"),
        )
    if side == "tgt" and not model.layered:
        raise trial.skip("its number of layers cannot be set to one")


def _positional(name: str) -> bool:
    parts = [part for word in name.split(".") for part in words(word)]
    return any(part.startswith("pos") or part in ("pe", "wpe", "pes") for part in parts)


# limits


def ids_refused(trial: Trial, side: str, negative: bool = False) -> None:
    """An id outside of the vocabulary raises an error."""
    model = model_of(trial)
    own = "src_V" if side == "src" and model.settable("src_V") else "V"
    if model.takes != "ids" or not model.settable(own):
        raise trial.skip("it takes vectors" if model.takes != "ids" else "its vocabulary cannot be set")
    size = SIZES["V"] if own == "V" or not model.settable("V") else model.words("src")
    ids = trial.inputs[side].copy()
    for legal in (0, size - 1):
        ids[:, -1] = legal
        try:
            trial.changed(**{side: ids.copy()})
        except CallFailed as error:
            raise Violation(f"the id {legal} of a vocabulary of {size} words is refused: {error}") from None
    ids[:, -1] = -1 if negative else size
    trial.shown = {side: ids}
    try:
        trial.changed(**{side: ids})
    except CallFailed as error:
        if error.kind == "exception":
            return
        raise
    raise Violation(
        f"the id {int(ids[0, -1])} was taken, though the vocabulary has {size} words, 0 to {size - 1}",
        Difference("an error", "scores"),
    )


def capacity_of_model(trial: Trial) -> None:
    """max_len tokens are taken; one more is refused, or scored as the first ones were."""
    model = model_of(trial)
    if not model.settable("max_len"):
        raise trial.skip("it has no max_len")
    L = trial.case["max_len"]
    rng = trial.case.rng
    longer = rng.integers(FIRST_WORD, model.words("tgt"), (trial.case["B"], L + 1))
    try:
        full = trial.changed(tgt=longer[:, :L])["output"]
    except CallFailed as error:
        raise Violation(f"built with max_len = {L}, it refuses a target of {L} tokens: {error}") from None
    trial.shown = {"tgt": longer}
    try:
        beyond = trial.changed(tgt=longer)["output"]
    except CallFailed as error:
        if error.kind == "exception":
            return
        raise
    if model.last_only:
        return
    if beyond.shape[1] != L + 1:
        raise Violation(
            f"a target of {L + 1} tokens, one more than max_len, is neither refused nor scored: "
            f"the shape is {list(beyond.shape)}",
            Difference(f"an error, or scores for {L + 1} positions", str(list(beyond.shape))),
        )
    what = f"with one token more than max_len = {L}, a score before it"
    trial.same(beyond[:, :L], full, what, error_allowed(trial, full))


def saved_and_loaded(trial: Trial) -> None:
    """The state_dict of one model, loaded into another one."""
    model = model_of(trial)
    fresh = model.variation(variant="fresh", loud=False)
    source, target = (m.built(trial.case, model.double) for m in (model, fresh))
    try:
        names = model.session.state(source, target)
    except CallFailed as error:
        if error.kind != "exception":
            raise
        raise Violation(f"what it saves cannot be loaded into a model built anew: {error}") from None
    if names is None:
        raise trial.skip("it has no state_dict")
    before = trial.call()["output"]
    after = fresh.call(trial.inputs, fresh=True)["output"]
    unsaved = [item["name"].lstrip(".") for item in model.weights(trial.case) if not item["alias"]]
    unsaved = [name for name in unsaved if name not in names]
    allowed = error_allowed(trial, before)
    if before.shape != after.shape or not (np.abs(before - after) <= allowed).all():
        rest = f": not in its state_dict are {', '.join(unsaved[:4])}{' …' if len(unsaved) > 4 else ''}"
        raise Violation(
            f"a model built anew, with the state_dict of this one loaded, gives other scores{rest if unsaved else ''}",
            Difference(before[0].round(4).tolist(), after[0].round(4).tolist()),
        )


# padding


def source_padding(trial: Trial) -> None:
    """What is blocked may hold anything, and may be left out."""
    model = model_of(trial)
    masked = model.hides_source
    if not masked and not (model.source == "src" and model.pads("src")):
        raise trial.skip("it takes no mask over the source and no padding id")
    source = trial.inputs[model.source]
    B, S = source.shape[:2]
    lengths = trial.case.rng.permutation(np.arange(B) % (S - 1) + 1)
    real = np.arange(S)[None, :] < lengths[:, None]
    padded = trial.inputs.replaced(allowed=real)
    disturbed = model.disturbed(padded, ~real) if masked else padded
    arrays = {n: v for n, v in trial.inputs.items() if isinstance(v, np.ndarray)}
    alone = [
        trial.inputs.replaced(
            **{
                n: v[b : b + 1, : lengths[b]] if n == model.source else v[b : b + 1]
                for n, v in arrays.items()
            }
        )
        for b in range(B)
    ]
    before, after, *short = outputs_of(trial, padded, disturbed, *alone)
    allowed = error_allowed(trial, before)
    trial.shown = {model.source: disturbed[model.source], "real": real}
    trial.same(after, before, "after what the mask blocks in the source was changed, the score", allowed)
    for b, output in enumerate(short):
        what = f"against the same sentence without its padding (length {lengths[b]} of {S}), the score"
        trial.same(before[b : b + 1], output, what, allowed)


def target_padding(trial: Trial) -> None:
    """A blocked position within the target does not touch the others."""
    model, tgt = model_of(trial), trial.inputs["tgt"]
    if not model.masks("tgt_key_padding_mask"):
        raise trial.skip("it takes no padding mask over the target")
    T, j = tgt.shape[1], tgt.shape[1] // 2
    real = np.broadcast_to(np.arange(T) != j, tgt.shape).copy()
    changed = tgt.copy()
    changed[:, j] = other_words(changed[:, j], model.words("tgt"), 2)
    padded = trial.inputs.replaced(tgt_allowed=real)
    before, after = outputs_of(trial, padded, padded.replaced(tgt=changed))
    keep = [T - 1] if model.last_only else [i for i in range(T) if i != j]
    index = [0] if model.last_only else keep
    trial.shown = {"tgt": changed, "real": real}
    what = f"after the token at the blocked position {j} was changed, the score elsewhere"
    trial.same(after[:, index], before[:, index], what, error_allowed(trial, before[:, index]))


def scores_not_probabilities(trial: Trial) -> None:
    """Rows that are non-negative and sum to 1 are probabilities."""
    model, output = model_of(trial), trial.call()["output"]
    if not model.settable("V") or output.shape[-1] != model.width or model.form == "(B, T, d)":
        raise trial.skip("it does not return a score for each word")
    if (output >= 0).all() and (np.abs(output.sum(axis=-1) - 1) < 1e-3).all():
        raise Violation(
            "each row of scores is non-negative and sums to 1: these are probabilities, after a softmax",
            Difference("logits, or their log_softmax", output[0].round(4).tolist()),
        )

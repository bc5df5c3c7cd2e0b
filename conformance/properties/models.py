"""Properties of whole models and of ``clones``.

``output`` is (B, T, V): scores for every word at every position; T is 1 where a model gives the last alone.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np

from ..candidates.errors import CallFailed
from ..candidates.models import (
    FIRST_WORD,
    SIZES,
    ClonesSubject,
    EncoderDecoderSubject,
    ModelSubject,
    other_words,
)
from ..candidates.names import words
from ..engine.cases import Inputs, Unseen
from ..engine.pictures import changed_outputs, leak
from ..engine.trial import Difference, Trial, Violation

__all__ = [
    "capacity_of_model",
    "clones_counted",
    "clones_equal",
    "clones_independent",
    "clones_own_parameters",
    "clones_registered",
    "decode_after_encode",
    "decode_reads_memory",
    "encoder_sees_all",
    "every_layer_matters",
    "every_layer_reads_memory",
    "ids_refused",
    "layers_have_own_parameters",
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


def _model(trial: Trial) -> ModelSubject:
    assert isinstance(trial.subject, ModelSubject)
    return trial.subject


def _outputs(trial: Trial, *variants: Inputs) -> list[np.ndarray]:
    """Outputs for several inputs, asked for in one frame."""
    trial.subject.prefetch(variants)
    return [trial.call(inputs)["output"] for inputs in variants]


def _allowed(trial: Trial, *outputs: np.ndarray) -> float:
    sizes = [np.abs(output[np.isfinite(output)]).max(initial=1.0) for output in outputs]
    return _model(trial).allowed * float(max(sizes))


def _moved(trial: Trial, before: np.ndarray, after: np.ndarray) -> np.ndarray:
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


def _silent(trial: Trial) -> float:
    """A change up to this is none."""
    return SILENT[_model(trial).floats]


def _side(trial: Trial) -> str:
    return "the source token" if _model(trial).source == "src" else "the memory row"


# shapes


def logits_shape(trial: Trial) -> None:
    """(B, T, V), or the form that the model was seen to have."""
    model = _model(trial)
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
    model, tgt = _model(trial), trial.inputs["tgt"]
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
    before, *after = _outputs(trial, trial.inputs, *variants)
    trial.drawing = lambda: leak(lambda j: _token_moves(trial, model, j, before), T)
    for j, variant, output in zip(places, variants, after, strict=True):
        trial.shown = {"tgt": variant["tgt"]}
        what = f"after the tokens from position {j} on were replaced, the score before it"
        trial.same(output[:, :j], before[:, :j], what, _allowed(trial, before))


def _token_moves(trial: Trial, model: ModelSubject, j: int, before: np.ndarray) -> np.ndarray:
    changed = trial.inputs["tgt"].copy()
    changed[:, j] = other_words(changed[:, j], model.words("tgt"), 1 + j)
    return changed_outputs(_outputs(trial, trial.inputs.replaced(tgt=changed))[0], before)


def tokens_reach(trial: Trial) -> None:
    """Another token at j; the scores at every i >= j change."""
    model, tgt = _model(trial), trial.inputs["tgt"]
    T = tgt.shape[1]
    variants = []
    for j in range(T):
        for step in (1, 3):
            changed = tgt.copy()
            changed[:, j] = other_words(changed[:, j], model.words("tgt"), step)
            variants.append(trial.inputs.replaced(tgt=changed))
    before, *after = _outputs(trial, trial.inputs, *variants)
    if not model.last_only:
        trial.drawing = lambda: leak(lambda j: _token_moves(trial, model, j, before), T, owed=True)
    for j in range(T):
        moved = np.maximum(*(_moved(trial, before, o) for o in after[2 * j : 2 * j + 2])).max(axis=0)
        for i in [T - 1] if model.last_only else range(j, T):
            found = float(moved[0 if model.last_only else i])
            if not found > _silent(trial):
                trial.shown = {"tgt": variants[2 * j]["tgt"]}
                raise Violation(
                    f"the token at position {j} was replaced, but the scores at position {i} did not change",
                    Difference("a change", f"a change of {found:.3g}", (i, j)),
                )


def source_reaches(trial: Trial) -> None:
    """Another memory row, or source token, at j; the scores at every position change."""
    model = _model(trial)
    B, S = trial.inputs[model.source].shape[:2]
    variants = [model.disturbed(trial.inputs, np.broadcast_to(np.arange(S) == j, (B, S))) for j in range(S)]
    before, *after = _outputs(trial, trial.inputs, *variants)
    for j, variant, output in zip(range(S), variants, after, strict=True):
        moved = _moved(trial, before, output)
        if not (moved > _silent(trial)).all():
            b, i = (int(n) for n in np.argwhere(~(moved > _silent(trial)))[0])
            trial.shown = {model.source: variant[model.source]}
            raise Violation(
                f"{_side(trial)} {j} was changed, but the scores at position {i} of batch row {b} did not change",
                Difference("a change", f"a change of {moved[b, i]:.3g}", (i, j)),
            )


def parallel_is_sequential(trial: Trial) -> None:
    """The last scores of every prefix against those of the whole target."""
    model, tgt = _model(trial), trial.inputs["tgt"]
    if model.last_only:
        raise trial.skip("it returns the scores of the last position alone")
    T = tgt.shape[1]
    prefixes = [trial.inputs.replaced(tgt=tgt[:, :t]) for t in range(1, T)]
    whole, *parts = _outputs(trial, trial.inputs, *prefixes)
    for t, part in enumerate(parts):
        what = f"against one pass over all {T} tokens, the last score of a pass over the first {t + 1}"
        trial.shown = {"tgt": prefixes[t]["tgt"]}
        trial.same(part[:, -1], whole[:, t], what, _allowed(trial, whole))


def rows_independent(trial: Trial) -> None:
    """The batch as a whole, row by row, and reversed."""
    arrays = {n: v for n, v in trial.inputs.items() if isinstance(v, np.ndarray)}
    B = len(arrays["tgt"])
    if B < 2:
        raise trial.skip("one row is no batch")
    rows = [trial.inputs.replaced(**{n: v[b : b + 1] for n, v in arrays.items()}) for b in range(B)]
    turned = trial.inputs.replaced(**{n: v[::-1].copy() for n, v in arrays.items()})
    whole, back, *alone = _outputs(trial, trial.inputs, turned, *rows)
    allowed = _allowed(trial, whole)
    for b, row in enumerate(alone):
        what = f"row {b} of the batch differs from the same row alone: the score"
        trial.same(whole[b : b + 1], row, what, allowed)
    trial.same(back, whole[::-1], "after reversing the batch, the score", allowed)


def order_matters(trial: Trial, side: str) -> None:
    """Two tokens are exchanged; the last scores change."""
    model = _model(trial)
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
        before, after = _outputs(
            trial, trial.inputs.replaced(**{side: ids}), trial.inputs.replaced(**{side: swapped})
        )
        moved = np.append(moved, _moved(trial, before, after)[:, -1])
        trial.shown = {side: swapped}
    if not (moved > max(_silent(trial), 1e-6)).any():
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


# layers


def _layer_groups(trial: Trial, n: int) -> dict[tuple[str, int], list[str]]:
    """The parameters of each of n layers, by name: what comes with a further layer, and its like in others.

    Layers are told apart by a number in the name; encoder and decoder, by what stands before it.
    Raises OutOfDomain where that is not so.
    """
    model = _model(trial)
    if not model.layered:
        raise trial.skip("its number of layers cannot be set")
    most, fewer = (
        {item["name"] for item in model.weights(trial.case.replaced(n_layers=k))} for k in (n, n - 1)
    )
    groups: dict[tuple[str, int], list[str]] = {}
    for name in sorted(most - fewer):
        parts = name.split(".")
        index = next((i for i, part in enumerate(parts) if part == str(n - 1)), None)
        if index is None:
            raise trial.skip("its parameters do not tell which layer they belong to")
        for k in range(n):
            like = ".".join([*parts[:index], str(k), *parts[index + 1 :]])
            if k == n - 1 or like in fewer:
                groups.setdefault((".".join(parts[:index]).lstrip("."), k), []).append(like)
    if not groups:
        raise trial.skip("its parameters do not tell which layer they belong to")
    return dict(sorted(groups.items()))


def layers_have_own_parameters(trial: Trial) -> None:
    """Counts for 1, 2 and 3 layers, and places in memory."""
    model = _model(trial)
    if not model.layered:
        raise trial.skip("its number of layers cannot be set")
    listed = {n: model.weights(trial.case.replaced(n_layers=n), repeated=True) for n in (1, 2, 3)}
    counts = {n: sum(i["value"].values.size for i in items if not i["alias"]) for n, items in listed.items()}
    if not counts[1]:
        raise trial.skip("its parameters cannot be seen")
    model.last_calls = ()  # no call shows it
    if counts[2] == counts[1]:
        raise Violation(
            f"with two layers it has as many parameters as with one, {counts[1]}: "
            "the layers are one and the same, or the second is missing",
            Difference("more than with one layer", str(counts[2])),
        )
    first = {item["name"] for item in listed[1]}
    for item in listed[2]:
        name, alias = item["name"], item["alias"]
        if alias in first and name not in first and _pattern(alias) == _pattern(name):
            raise Violation(f"two layers share weights: {name} is {alias}, in the same place of memory")
    if counts[3] - counts[2] != counts[2] - counts[1] or counts[2] < counts[1]:
        raise Violation(
            f"the number of parameters grows from {counts[1]} to {counts[2]} to {counts[3]} "
            "for one, two and three layers, not by equal steps",
            Difference(str(2 * counts[2] - counts[1]), str(counts[3])),
        )


def _pattern(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def every_layer_matters(trial: Trial) -> None:
    """With the parameters of one layer changed the scores change, and the others' parameters do not."""
    model = _model(trial)
    case = trial.case.replaced(n_layers=3)
    groups = _layer_groups(trial, 3)
    inputs = _cased(trial.inputs, case)
    original = {item["name"]: item["value"].values for item in model.weights(case)}
    before = model.call(inputs)["output"]
    for (part, k), names in groups.items():
        changed = {name: _shifted(original[name], name) for name in names if name in original}
        if all(values.ndim < 2 for values in changed.values()):
            continue  # biases alone, some of which make no difference in attention
        other = model.variation(variant=f"{part} {k} changed")
        other.load(case, changed)
        moved = float(_moved(trial, before, other.call(inputs)["output"]).max())
        if not moved > _silent(trial):
            raise Violation(
                f"all parameters of layer {k} (of 3, counted from 0; {part}.{k}) were changed, "
                "but no score changed",
                Difference("a change", f"a change of {moved:.3g}"),
            )
        for item in other.weights(case):
            name = item["name"]
            touched = (
                name in original and np.abs(item["value"].values - original[name]).max(initial=0.0) > 1e-3
            )
            if touched and name not in changed and not item["alias"]:
                raise Violation(f"the parameters of {part}.{k} were changed, and {name} changed with them")


def _cased(inputs: Inputs, case: Any) -> Inputs:
    return Inputs(case, dict(inputs))


def _shifted(values: np.ndarray, name: str) -> np.ndarray:
    rng = np.random.default_rng(len(name))
    return values + np.round(rng.normal(0.0, 0.5, values.shape), 2) + 0.25


def every_layer_reads_memory(trial: Trial) -> None:
    """In each layer some weights make a difference with an ordinary memory and none with one of zeros."""
    model = _model(trial)
    case = trial.case.replaced(n_layers=2)
    groups = _layer_groups(trial, 2)
    other = model.variation(variant="one weight changed")
    full = _cased(trial.inputs, case)
    empty = full.replaced(memory=np.zeros_like(full["memory"]))
    original = {item["name"]: item["value"].values for item in model.weights(case)}
    before = [o.copy() for o in _outputs(trial, full, empty)]
    readers: Counter[int] = Counter()
    previous = original
    for (_, k), names in groups.items():
        for name in names:
            values = original.get(name)
            if values is None or values.size == max(values.shape, default=1):
                continue
            other.load(case, {**previous, name: _shifted(values, name)})
            previous = {name: values}
            other.prefetch([full, empty])
            after = [other.call(inputs)["output"] for inputs in (full, empty)]
            with_memory, without = (
                float(_moved(trial, b, a).max()) for b, a in zip(before, after, strict=True)
            )
            readers[k] += with_memory > 1e-6 and without <= _silent(trial)
    if not readers.total():
        raise trial.skip("which weights read the memory cannot be told apart in it")
    for k in sorted({k for _, k in groups}):
        if not readers[k]:
            raise Violation(
                f"no weight of layer {k} (counted from 0) of 2 reads the memory, though other layers' weights do",
                Difference("weights that act on the memory", "none"),
            )


# limits


def ids_refused(trial: Trial, side: str, negative: bool = False) -> None:
    """An id outside of the vocabulary raises an error."""
    model = _model(trial)
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
    model = _model(trial)
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
    trial.same(beyond[:, :L], full, what, _allowed(trial, full))


def saved_and_loaded(trial: Trial) -> None:
    """The state_dict of one model, loaded into another one."""
    model = _model(trial)
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
    allowed = _allowed(trial, before)
    if before.shape != after.shape or not (np.abs(before - after) <= allowed).all():
        rest = f": not in its state_dict are {', '.join(unsaved[:4])}{' …' if len(unsaved) > 4 else ''}"
        raise Violation(
            f"a model built anew, with the state_dict of this one loaded, gives other scores{rest if unsaved else ''}",
            Difference(before[0].round(4).tolist(), after[0].round(4).tolist()),
        )


# padding


def source_padding(trial: Trial) -> None:
    """What is blocked may hold anything, and may be left out."""
    model = _model(trial)
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
    before, after, *short = _outputs(trial, padded, disturbed, *alone)
    allowed = _allowed(trial, before)
    trial.shown = {model.source: disturbed[model.source], "real": real}
    trial.same(after, before, "after what the mask blocks in the source was changed, the score", allowed)
    for b, output in enumerate(short):
        what = f"against the same sentence without its padding (length {lengths[b]} of {S}), the score"
        trial.same(before[b : b + 1], output, what, allowed)


def target_padding(trial: Trial) -> None:
    """A blocked position within the target does not touch the others."""
    model, tgt = _model(trial), trial.inputs["tgt"]
    if not model.masks("tgt_key_padding_mask"):
        raise trial.skip("it takes no padding mask over the target")
    T, j = tgt.shape[1], tgt.shape[1] // 2
    real = np.broadcast_to(np.arange(T) != j, tgt.shape).copy()
    changed = tgt.copy()
    changed[:, j] = other_words(changed[:, j], model.words("tgt"), 2)
    padded = trial.inputs.replaced(tgt_allowed=real)
    before, after = _outputs(trial, padded, padded.replaced(tgt=changed))
    keep = [T - 1] if model.last_only else [i for i in range(T) if i != j]
    index = [0] if model.last_only else keep
    trial.shown = {"tgt": changed, "real": real}
    what = f"after the token at the blocked position {j} was changed, the score elsewhere"
    trial.same(after[:, index], before[:, index], what, _allowed(trial, before[:, index]))


# encoder and decoder


def decode_after_encode(trial: Trial) -> None:
    """forward(src, tgt) against decode(tgt, encode(src))."""
    model = _model(trial)
    assert isinstance(model, EncoderDecoderSubject)
    steps = model.stepwise()
    whole, joined = trial.call()["output"], steps.call(trial.inputs)["output"]
    what = "the score of decode(tgt, encode(src)) against that of one call"
    trial.same(joined, whole, what, _allowed(trial, whole))


def decode_reads_memory(trial: Trial) -> None:
    """decode with the memory of one source, after another one was encoded."""
    model = _model(trial)
    assert isinstance(model, EncoderDecoderSubject)
    steps = model.stepwise() if model.whole else model
    if steps.encoder is None or not steps.batched:
        raise trial.skip("it has no encode(src) beside its decode(tgt, memory)")
    other = model.disturbed(trial.inputs, np.ones(trial.inputs["src"].shape, dtype=bool))
    expected = steps.call(trial.inputs)["output"]
    what = "decode was given the memory of one source after another was encoded too: its score"
    trial.same(steps.after_another(trial.inputs, other), expected, what, _allowed(trial, expected))


def scores_not_probabilities(trial: Trial) -> None:
    """Rows that are non-negative and sum to 1 are probabilities."""
    model, output = _model(trial), trial.call()["output"]
    if not model.settable("V") or output.shape[-1] != model.width or model.form == "(B, T, d)":
        raise trial.skip("it does not return a score for each word")
    if (output >= 0).all() and (np.abs(output.sum(axis=-1) - 1) < 1e-3).all():
        raise Violation(
            "each row of scores is non-negative and sums to 1: these are probabilities, after a softmax",
            Difference("logits, or their log_softmax", output[0].round(4).tolist()),
        )


def encoder_sees_all(trial: Trial) -> None:
    """An encoder that mixes positions has no causal triangle."""
    model = _model(trial)
    assert isinstance(model, EncoderDecoderSubject)
    src = trial.inputs["src"]
    S = src.shape[1]
    variants = []
    for j in range(S):
        changed = src.copy()
        changed[:, j] = other_words(changed[:, j], model.words("src"))
        variants.append(trial.inputs.replaced(src=changed))
    before, *after = model.memories([trial.inputs, *variants])
    moved = np.stack([np.abs(a - before).max(axis=(0, 2)) for a in after]) > _silent(trial)  # (j, row)
    if not (moved & ~np.eye(S, dtype=bool)).any():
        raise trial.skip("its encode does not mix positions")
    if not moved[S - 1, 0]:
        trial.shown = {"src": variants[-1]["src"]}
        raise Violation(
            "the last source token was replaced, but the first row of memory did not change, "
            "though encode mixes positions: with 1 for a token j that changes row i, the encoder sees",
            Difference(np.ones((S, S), dtype=int).tolist(), moved.T.astype(int).tolist(), (0, S - 1)),
        )


# clones


def _copies(trial: Trial, repeated: bool = True) -> dict[str, list[dict[str, Any]]]:
    """The parameters of each copy, by the copy's place in the result."""
    subject = trial.subject
    assert isinstance(subject, ClonesSubject)
    found: dict[str, list[dict[str, Any]]] = {}
    for item in subject.session.parameters(subject.copies(trial.case["N"]), repeated=repeated):
        place = next((part for part in item["name"].split(".") if part.isdigit()), "")
        if place:
            found.setdefault(place, []).append(item)
    return found


def clones_counted(trial: Trial) -> None:
    """N modules."""
    N, found = trial.case["N"], _copies(trial)
    if len(found) != N:
        raise Violation(
            f"clones(module, {N}) holds {len(found)} modules with parameters, expected {N}",
            Difference(str(N), str(len(found))),
        )


def clones_own_parameters(trial: Trial) -> None:
    """No two copies at the same place in memory."""
    for items in _copies(trial).values():
        for item in items:
            if item["alias"]:
                name, alias = item["name"].lstrip("."), item["alias"].lstrip(".")
                raise Violation(
                    f"two copies share their parameters: {name} is {alias}, in the same place of memory",
                    Difference("parameters of its own", "shared"),
                )


def clones_independent(trial: Trial) -> None:
    """One copy overwritten, the others read again."""
    subject = trial.subject
    assert isinstance(subject, ClonesSubject)
    before = _copies(trial)
    first, *others = before
    changed = {i["name"]: subject.array(i["value"].values + 1.0) for i in before[first]}
    subject.session.load(subject.copies(trial.case["N"]), changed)
    after = _copies(trial)
    subject.session.load(subject.copies(trial.case["N"]), {i["name"]: i["value"] for i in before[first]})
    for place in others:
        for old, new in zip(before[place], after[place], strict=True):
            what = f"1 was added to the parameters of copy {first}; those of copy {place} ({old['name'].lstrip('.')})"
            trial.same(new["value"].values, old["value"].values, what, 0.0)


def clones_equal(trial: Trial) -> None:
    """All copies begin with the same numbers."""
    first, *others = _copies(trial).values()
    for items in others:
        for one, other in zip(first, items, strict=True):
            what = f"the copies do not begin alike: {other['name'].lstrip('.')} against {one['name'].lstrip('.')}"
            trial.same(other["value"].values, one["value"].values, what, 1e-7)


def clones_registered(trial: Trial) -> None:
    """The state_dict names every copy's parameters."""
    subject = trial.subject
    assert isinstance(subject, ClonesSubject)
    names = subject.session.state(subject.copies(trial.case["N"]))
    if names is None:
        raise Violation(
            "what it returns is no module: the copies are not registered with the model that keeps them",
            Difference("an nn.ModuleList", "something without a state_dict"),
        )
    wanted = {item["name"].lstrip(".") for items in _copies(trial).values() for item in items}
    missing = sorted(wanted - set(names))
    if missing:
        raise Violation(
            f"its state_dict does not hold {', '.join(missing[:4])}",
            Difference(", ".join(sorted(wanted)), ", ".join(names)),
        )

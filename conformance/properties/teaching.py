"""Properties of teacher forcing: the target shifted to the right, and the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..candidates.errors import CallFailed
from ..candidates.stand_in import PAD
from ..candidates.teaching_loss import LossSubject, cross_entropies, log_softmax
from ..engine.cases import Inputs
from ..engine.tolerance import rounding
from ..engine.trial import Difference, Trial, Violation, number

__all__ = [
    "holds_previous_token",
    "labels_follow",
    "large_logits",
    "loss_gradient",
    "loss_kind",
    "mean_cross_entropy",
    "other_reductions",
    "padding_ignored",
    "padding_not_counted",
    "padding_stays",
    "perfect_loss",
    "shift_example",
    "shifted_length",
    "shifts_rows_alone",
    "shifts_shortest",
    "starts_with_bos",
    "step_by_step",
    "uniform_loss",
    "whole_ids",
]


# shifting: every id of a target is different, so that each misplaced token can be named


def shifted_length(trial: Trial) -> None:
    """Input, and labels where there are any, have one token for each label."""
    results, target = trial.call(), trial.inputs["target"]
    expected = (len(target), target.shape[1] - 1)
    for name in ("input", "labels"):
        if name in results and results[name].shape != expected:
            found = results[name].shape
            raise Violation(
                f"there are {expected[1]} labels in each of {expected[0]} sequences, "
                f"but the {name} that came back has shape {list(found)}, expected {list(expected)}",
                Difference(
                    target[:, :-1].tolist() if name == "input" else target[:, 1:].tolist(),
                    results[name].tolist(),
                ),
            )


def whole_ids(trial: Trial) -> None:
    """The input is of an integer dtype."""
    shown = trial.call()["input"]
    found = shown.dtype
    if found.kind not in "iu" and shown.size:
        raise Violation(f"the input came back as {found}, expected integers", Difference("int64", str(found)))


def starts_with_bos(trial: Trial) -> None:
    """The first token of every row."""
    shown, target = trial.call()["input"], trial.inputs["target"]
    if shown.shape[1] and len(shown) == len(target) and not np.array_equal(shown[:, 0], target[:, 0]):
        b = int(np.argwhere(shown[:, 0] != target[:, 0])[0, 0])
        bos, found, row = int(target[b, 0]), shown[b, 0], target[b]
        last = ", the last token of the target" if found == row[row != PAD][-1] else ""
        raise Violation(
            f"the input starts with {number(found)}{last}, expected BOS ({bos})",
            Difference(target[:, :-1].tolist(), shown.tolist(), (b, 0)),
        )


def holds_previous_token(trial: Trial) -> None:
    """Position t holds target[t], the token before label t = target[t + 1]."""
    previous_tokens(trial.call()["input"], trial.inputs["target"])


def previous_tokens(shown: np.ndarray, target: np.ndarray) -> None:
    """Demand that ids (B, T - 1) are the target's, (B, T), without the last; before padding they may be others."""
    expected = target[:, :-1]
    owed = target[:, 1:] != PAD
    if shown.shape != expected.shape:
        raise Violation(
            f"the ids have shape {list(shown.shape)}, expected {list(expected.shape)}",
            Difference(expected.tolist(), shown.tolist()),
        )
    wrong = owed & (shown != expected)
    if wrong.any():
        b, t = (int(n) for n in np.argwhere(wrong)[0])
        found, label = shown[b, t], target[b, t + 1]
        leak = ": the very token that is to be predicted there" if found == label else ""
        raise Violation(
            f"at position {t} the input holds {number(found)}{leak}; "
            f"expected {expected[b, t]}, the token before the label {label}",
            Difference(expected.tolist(), shown.tolist(), (b, t)),
        )


def labels_follow(trial: Trial) -> None:
    """The labels are the target without BOS."""
    labels = trial.call().get("labels")
    if labels is None:
        raise trial.skip("it returns no labels")
    _label(labels, trial.inputs["target"])


def _label(labels: np.ndarray, target: np.ndarray) -> None:
    expected = target[:, 1:]
    wrong = (labels != expected) & (expected != PAD) if labels.shape == expected.shape else np.ones((1, 1))
    if wrong.any():
        b, t = (int(n) for n in np.argwhere(wrong)[0])
        same = labels.shape == target[:, :-1].shape and np.array_equal(labels, target[:, :-1])
        why = ": they are the input itself" if same else ""
        found = number(labels[b, t]) if labels.shape == expected.shape else f"of shape {list(labels.shape)}"
        raise Violation(
            f"at position {t} the label is {found}, expected {expected[b, t]}, the next token{why}",
            Difference(expected.tolist(), labels.tolist(), (b, t)),
        )


def padding_stays(trial: Trial) -> None:
    """In a padded batch, where labels are real."""
    results, target = trial.call(), trial.inputs["target"]
    previous_tokens(results["input"], target)
    if "labels" in results:
        _label(results["labels"], target)


def shifts_rows_alone(trial: Trial) -> None:
    """The batch as a whole against its rows."""
    results, target = trial.call(), trial.inputs["target"]
    for b in range(len(target)):
        alone = trial.changed(target=target[b : b + 1])
        for name in ("input", "labels"):
            if name in results and name in alone:
                what = f"row {b} of the batch differs from the same row alone: the {name}"
                trial.same(results[name][b : b + 1], alone[name], what, 0.0)


def shifts_shortest(trial: Trial) -> None:
    """[BOS, EOS], and BOS alone."""
    target = trial.inputs["target"]
    try:
        shown = trial.call()["input"]
    except CallFailed as error:
        if target.shape[1] == 1 and error.kind in ("exception", "result"):
            return
        raise
    expected = target[:, :-1]
    if not (shown.size == expected.size == 0 or np.array_equal(shown, expected)):
        raise Violation(
            f"the target {target.tolist()} gave the input {shown.tolist()}, expected {expected.tolist()}",
            Difference(expected.tolist(), shown.tolist()),
        )


def shift_example(trial: Trial, target: Sequence[int]) -> None:
    """The notes' [BOS, the, cat, sat, EOS]."""
    row = np.array([target], dtype=np.int64)
    row[0, 0] = trial.inputs["target"][0, 0]
    trial.inputs = trial.inputs.replaced(target=row)
    results = trial.call()
    previous_tokens(results["input"], row)
    if "labels" in results:
        _label(results["labels"], row)


# the loss


def _expected(trial: Trial, inputs: Inputs, weights: np.ndarray) -> float:
    return float((weights * cross_entropies(inputs["logits"], inputs["labels"], inputs["real"])).sum())


def _allowed(inputs: Inputs, weights: np.ndarray) -> float:
    """Rounding, and a small constant within the logarithm, as the notes have it: 1e-10 at p = 1e-4 makes 1e-6."""
    size = float(np.abs(inputs["logits"]).max(initial=1.0))
    return (rounding(inputs.case["dtype"], size) + 2e-5) * max(1.0, float(weights.sum()))


def _loss(trial: Trial, inputs: Inputs | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The loss and what each label counts in it."""
    results = trial.call(inputs)
    if "loss" not in results:
        raise Violation(f"the loss has shape {list(results['shape'])}, expected one number")
    return results["loss"], results["weights"]


def _compare(trial: Trial, inputs: Inputs, expected: float | None, what: str) -> None:
    loss, weights = _loss(trial, inputs)
    expected = _expected(trial, inputs, weights) if expected is None else expected * float(weights.sum())
    trial.inputs = inputs
    close(trial, loss, expected, _allowed(inputs, weights), what)


def close(trial: Trial, observed: Any, expected: float, allowed: float, what: str) -> None:
    """Demand that a number is another one, up to an error.  Raises Violation."""
    value = float(observed)
    error = abs(value - expected)
    if not error <= allowed:
        raise Violation(
            f"{what} is {number(value)}, expected {number(expected)}", Difference(expected, value)
        )
    trial.margin = max(trial.margin, error / allowed)


def loss_kind(trial: Trial) -> None:
    """One number."""
    results = trial.call()
    if "loss" not in results:
        raise Violation(
            f"for {trial.inputs['labels'].size} labels what came back has shape {list(results['shape'])}, "
            "expected one number",
            Difference("a number", str(list(results["shape"]))),
        )


def uniform_loss(trial: Trial) -> None:
    """Equal logits."""
    V = trial.case["V"]
    flat = np.zeros_like(trial.inputs["logits"])
    _compare(
        trial, trial.inputs.replaced(logits=flat), math.log(V), f"with equal logits for {V} tokens the loss"
    )


def perfect_loss(trial: Trial) -> None:
    """Each label's logit 30 above the others."""
    labels = trial.inputs["labels"]
    sure = (30.0 * np.eye(trial.case["V"])[labels]).astype(trial.inputs["logits"].dtype)
    _compare(
        trial,
        trial.inputs.replaced(logits=sure),
        0.0,
        "with each label's logit at 30 and all others at 0 the loss",
    )


def mean_cross_entropy(trial: Trial) -> None:
    """Against -log softmax in float64."""
    _compare(trial, trial.inputs, None, "the loss")


def padding_ignored(trial: Trial) -> None:
    """Other logits at padding."""
    before, weights = _loss(trial)
    real, logits = trial.inputs["real"], trial.inputs["logits"]
    for other in (logits[..., ::-1] * 2.0 + np.arange(logits.shape[-1]), np.full_like(logits, 3.0)):
        changed = np.where(real[..., None], logits, other).astype(logits.dtype)
        inputs = trial.inputs.replaced(logits=changed)
        after, _ = _loss(trial, inputs)
        trial.shown = {"logits": changed}
        allowed = _allowed(inputs, weights)
        close(trial, after, float(before), allowed, "after a change of the logits at padding alone the loss")


def padding_not_counted(trial: Trial) -> None:
    """Against the mean over real labels."""
    _compare(
        trial,
        trial.inputs,
        None,
        f"with {int(trial.inputs['real'].sum())} real labels among {trial.inputs['real'].size} the loss",
    )


def step_by_step(trial: Trial) -> None:
    """One position a call."""
    loss, weights = _loss(trial)
    inputs, total = trial.inputs, 0.0
    for t in range(inputs["labels"].shape[1]):
        part = slice(t, t + 1)
        one = inputs.replaced(**{n: inputs[n][:, part] for n in ("logits", "labels", "real")})
        step, own = _loss(trial, one)
        total += float(step) * float(weights[:, part].sum() / own.sum())
    what = f"the loss of all {inputs['labels'].shape[1]} positions at once, which should join its steps,"
    close(trial, loss, total, 2 * _allowed(inputs, weights), what)


def large_logits(trial: Trial) -> None:
    """Finite at 1e4."""
    inputs = trial.inputs.replaced(logits=(trial.inputs["logits"] * 1e4).astype(trial.case["dtype"]))
    loss, _ = _loss(trial, inputs)
    trial.shown = {"logits": inputs["logits"]}
    if not np.isfinite(loss):
        expected = _expected(trial, inputs, trial.call(inputs)["weights"])
        raise Violation(
            f"with logits around 1e4 the loss is {number(loss)}, expected a finite number",
            Difference(f"about {expected:.5g}", number(loss)),
        )


def loss_gradient(trial: Trial) -> None:
    """softmax - onehot, weighted."""
    results = trial.call()
    if not results["tensor"]:
        raise trial.skip("it returns a plain number, which has no gradient")
    inputs, weights = trial.inputs, results["weights"]
    assert isinstance(trial.subject, LossSubject)
    found = trial.subject.gradient(inputs, results)
    if found is None:
        raise Violation("no gradient flows back from the loss to the logits: it was cut off on the way")
    onehot = np.eye(trial.case["V"])[np.where(inputs["real"], inputs["labels"], 0)]
    expected = weights[..., None] * (np.exp(log_softmax(inputs["logits"])) - onehot)
    trial.same(found, expected, "the gradient with respect to the logits", _allowed(inputs, weights))


def other_reductions(trial: Trial) -> None:
    """'sum' and 'none', whichever is taken."""
    inputs = trial.inputs
    losses = cross_entropies(inputs["logits"], inputs["labels"], inputs["real"])
    total, allowed = float(losses.sum()), _allowed(inputs, inputs["real"].astype(float))
    mean, whole, each = (_reduced(trial, word) for word in ("mean", "sum", "none"))
    for word, results, expected in (("mean", mean, total / inputs["real"].sum()), ("sum", whole, total)):
        if results is not None:
            close(trial, _one(results, word), expected, allowed, f"with reduction '{word}' the loss")
    if each is None or each["size"] == 1 < losses.size:  # what is not known is taken for the mean
        if whole is None:
            raise trial.skip("it takes neither 'sum' nor 'none' as its reduction")
        return
    if "each" not in each:
        shape = list(each["shape"])
        raise Violation(
            f"with reduction 'none' what came back has shape {shape}, expected {list(losses.shape)}"
        )
    trial.same(each["each"], losses, "with reduction 'none' the loss of the label", allowed)


def _one(results: dict[str, Any], word: str) -> np.ndarray:
    if "loss" not in results:
        shape = list(results["shape"])
        raise Violation(f"with reduction '{word}' what came back has shape {shape}, expected []")
    return results["loss"]


def _reduced(trial: Trial, word: str) -> dict[str, Any] | None:
    """The results with a word for the reduction; None where it does not take that word."""
    try:
        return trial.call(trial.inputs.replaced(reduction=word))
    except CallFailed as error:
        if error.kind == "exception":
            return None
        raise

"""Properties of teacher forcing: the shift, the loss, a training step, scheduled sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..candidates.errors import CallFailed
from ..candidates.teaching import PAD
from ..candidates.teaching_loss import cross_entropies, log_softmax
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
    "mixes_exactly",
    "mixes_given_tokens",
    "mixes_in_between",
    "mixes_independently",
    "other_reductions",
    "padding_ignored",
    "padding_not_counted",
    "padding_stays",
    "perfect_loss",
    "shift_example",
    "shifted_length",
    "shifts_rows_alone",
    "shifts_shortest",
    "shown_once",
    "shown_shifted",
    "starts_with_bos",
    "step_by_step",
    "step_loss",
    "step_memory",
    "step_padding",
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
    found = trial.call()["dtype"]
    if found.kind not in "iu" and trial.call()["input"].size:
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
    _previous(trial, trial.call()["input"], trial.inputs["target"])


def _previous(trial: Trial, shown: np.ndarray, target: np.ndarray) -> None:
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
    labels, target = _labels(trial), trial.inputs["target"]
    _label(labels, target)


def _labels(trial: Trial) -> np.ndarray:
    found = trial.call().get("labels")
    if found is None:
        raise trial.skip("it returns no labels")
    return found


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
    _previous(trial, results["input"], target)
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
    _previous(trial, results["input"], row)
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
    _close(trial, loss, expected, _allowed(inputs, weights), what)


def _close(trial: Trial, observed: Any, expected: float, allowed: float, what: str) -> None:
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
        _close(trial, after, float(before), allowed, "after a change of the logits at padding alone the loss")


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
    _close(trial, loss, total, 2 * _allowed(inputs, weights), what)


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
    found = trial.subject.gradient(inputs, results)  # type: ignore[attr-defined]
    if found is None:
        raise Violation("no gradient flows back from the loss to the logits: it was cut off on the way")
    onehot = np.eye(trial.case["V"])[np.where(inputs["real"], inputs["labels"], 0)]
    expected = weights[..., None] * (np.exp(log_softmax(inputs["logits"])) - onehot)
    trial.same(found, expected, "the gradient with respect to the logits", _allowed(inputs, weights))


def other_reductions(trial: Trial) -> None:
    """'sum' and 'none'."""
    inputs = trial.inputs
    losses = cross_entropies(inputs["logits"], inputs["labels"], inputs["real"])
    for word, expected in (
        ("mean", losses.sum() / inputs["real"].sum()),
        ("sum", losses.sum()),
        ("none", losses),
    ):
        given = inputs.replaced(reduction=word)
        try:
            results = trial.call(given)
        except CallFailed as error:
            if error.kind == "exception":
                continue  # it does not take this word
            raise
        found = results.get("each" if word == "none" else "loss")
        if word == "none" and results["size"] == 1 < losses.size:
            continue  # what is not known is taken for the mean: it does not offer this one
        if found is None:
            shape = list(results["shape"])
            raise Violation(
                f"with reduction '{word}' what came back has shape {shape}, expected {list(np.shape(expected))}"
            )
        allowed = _allowed(inputs, inputs["real"].astype(float))
        if word == "none":
            trial.same(found, np.asarray(expected), "with reduction 'none' the loss of the label", allowed)
        else:
            _close(trial, found, float(expected), allowed, f"with reduction '{word}' the loss")


# a training step


def shown_shifted(trial: Trial) -> None:
    """What the decoder was given, against target[:-1]."""
    shown, target = _step(trial)["shown"], trial.inputs["target"]
    if not shown:
        raise Violation("the model was never asked to decode", Difference(target[:, :-1].tolist(), "no call"))
    expected = target[:, :-1]
    first = next((part for part in shown if not _prefix(part, expected)), expected)
    if len(shown) > 1:  # one step after the other: another claim's business, if it is the truth that is shown
        if first is not expected:
            raise Violation(
                f"in one of its {len(shown)} calls the model was shown {first.tolist()}, "
                "which is no beginning of the target: it must see the truth, not its own predictions",
                Difference(expected.tolist(), first.tolist()),
            )
        return
    if np.array_equal(shown[0], target):
        raise Violation(
            "the model was shown the whole target, with the token that is to be predicted last",
            Difference(expected.tolist(), target.tolist()),
        )
    if np.array_equal(shown[0], target[:, 1:]):
        raise Violation(
            "the model was shown the target without BOS: at each position the very token that is to be predicted",
            Difference(expected.tolist(), shown[0].tolist()),
        )
    if np.array_equal(shown[0], target[:-1]):
        raise Violation(
            "the last sequence of the batch was dropped, not the last token of each sequence",
            Difference(expected.tolist(), shown[0].tolist()),
        )
    if shown[0].shape == target.shape and np.array_equal(shown[0][:, 1:], target[:, :-1]):
        raise Violation(
            "the target has its BOS already, and the step put another token in front of it",
            Difference(expected.tolist(), shown[0].tolist()),
        )
    if np.array_equal(shown[0], trial.inputs["src"]):
        raise Violation(
            "the model was shown the source in the place of the shifted target",
            Difference(expected.tolist(), shown[0].tolist()),
        )
    _previous(trial, shown[0], target)


def _prefix(part: np.ndarray, expected: np.ndarray) -> bool:
    """Whether a part of the shifted target was shown: its beginning, or one position of it."""
    n = part.shape[-1]
    if part.size == len(expected) and any(np.array_equal(part.reshape(-1), column) for column in expected.T):
        return True
    return part.shape[0] == len(expected) and np.array_equal(part, expected[:, :n])


def shown_once(trial: Trial) -> None:
    """The number of decodings."""
    results = _step(trial)
    if results["decodings"] != 1:
        parts = [part.tolist() for part in results["shown"]]
        raise Violation(
            f"the decoder was asked {results['decodings']} times, expected once for all positions together",
            Difference([trial.inputs["target"][:, :-1].tolist()], parts),
        )


def step_memory(trial: Trial) -> None:
    """The encoder's output, or the source, arrives at the model."""
    results = _step(trial)
    bound = trial.subject.binding.arguments
    wanted = [name for name in ("memory", "src") if name in bound]
    if "batch" in bound:
        wanted = ["src"]
    if not wanted:
        raise trial.skip("it takes neither a source nor an encoder's output")
    for name in wanted:
        sent = trial.inputs[name]
        if not any(_arrives(sent, found) for found in results["sources"]):
            words = {"memory": "the encoder's output", "src": "the source"}[name]
            nearest = next((f for f in results["sources"] if f.dtype.kind == sent.dtype.kind), None)
            raise Violation(
                f"{words} did not reach the model as it was passed in",
                Difference(sent.tolist(), "nothing" if nearest is None else nearest.tolist()),
            )


def _arrives(sent: np.ndarray, found: np.ndarray) -> bool:
    sent, found = sent.squeeze(), found.squeeze()
    turned = sent.swapaxes(0, 1) if sent.ndim > 1 else sent
    return any(s.shape == found.shape and np.allclose(s, found, atol=1e-5) for s in (sent, turned))


def step_loss(trial: Trial) -> None:
    """Mean cross-entropy of the stand-in's logits against target[1:]."""
    loss = _step(trial)["loss"]
    if loss is None:
        raise trial.skip("it does not return its loss")
    target = trial.inputs["target"]
    labels = target[:, 1:]
    real = labels != (trial.case["pad"] if trial.case["padding"] != "none" else -1)
    logits = trial.inputs["table"][target[:, :-1]]
    losses, counts = cross_entropies(logits, labels, real), real.sum(axis=1)
    expected = {
        "sum": losses.sum(),
        "row_sum": losses.sum() / len(losses),
        "row_mean": (losses.sum(axis=1) / counts).mean(),
    }.get(trial.subject.convention("reduction"), losses.sum() / real.sum())
    size = max(1.0, expected / max(1e-9, losses.sum() / real.sum()))
    _close(trial, loss, float(expected), 2e-5 * size, "the loss that the step returned")


def step_padding(trial: Trial) -> None:
    """The same with padding."""
    step_loss(trial)


def _step(trial: Trial) -> dict[str, Any]:
    return trial.call()


# scheduled sampling

ALARM = 1e-7


def unlikely(successes: int, draws: int, p: float) -> bool:
    """Whether a binomial count is so far from its mean that chance alone shows it less than once in 10^7 times.

    Chernoff's bound: for X ~ Bin(n, p) and a share q = k/n beyond p, P(X at least as far out) <= exp(-n KL(q, p))
    with KL(q, p) = q ln(q/p) + (1 - q) ln((1 - q)/(1 - p)); it holds for every n, without a normal approximation.
    Both tails together stay below ALARM if a count is refused only where n KL(q, p) > ln(2 / ALARM) = 16.8.
    A run makes at most 6 such tests for an object (the share at three probabilities; agreement of neighbours from
    call to call, along the positions and along the rows), so that a right function is refused with a probability
    below 6e-7 in a run.
    """
    q = successes / draws
    divergence = sum(a * math.log(a / b) for a, b in ((q, p), (1 - q, 1 - p)) if a > 0)
    return draws * divergence > math.log(2 / ALARM)


def _draws(trial: Trial) -> np.ndarray:
    """(calls, B, T): 1 for the model's token, 0 for the teacher's."""
    return trial.call()["model"]


def mixes_given_tokens(trial: Trial) -> None:
    """Nothing but the two tokens of a place."""
    found = _draws(trial)
    if (found < 0).any():
        share = int((found < 0).sum())
        raise Violation(
            f"{share} of {found.size} tokens are neither the teacher's token of their place nor the model's",
            Difference("the teacher's or the model's token", f"{share} others"),
        )


def mixes_exactly(trial: Trial, model: bool) -> None:
    """All of one side."""
    found = _draws(trial)
    wrong = int((found != int(model)).sum())
    if wrong:
        p, side = (1, "model's") if model else (0, "teacher's")
        raise Violation(
            f"at probability {p} of the model's token, {wrong} of {found.size} tokens are not the {side}",
            Difference(f"{found.size} of {found.size}", f"{found.size - wrong} of {found.size}"),
        )


def mixes_in_between(trial: Trial) -> None:
    """The share of the model's tokens; draws that one coin decides together are counted once."""
    found, p = _coins(trial), trial.case["percent"] / 100
    count, draws = int((found == 1).sum()), found.size
    if unlikely(count, draws, p):
        raise Violation(
            f"at probability {p:g} the model's token came {count} times in {draws} draws, "
            f"a share of {count / draws:.3f}",
            Difference(f"about {p * draws:.0f} of {draws}", f"{count} of {draws}"),
        )


def _coins(trial: Trial) -> np.ndarray:
    """One entry for each draw, (calls, B, T): where one decides for several tokens, the first of them is taken.

    Whether one draw may decide for several is told by mixes_independently.
    """
    found = _draws(trial)
    for axis in (2, 1):
        first = np.take(found, [0], axis)
        if (found == first).all():
            found = first
    return found


def mixes_independently(trial: Trial) -> None:
    """At p = 1/2 neighbours agree half of the time: differences of fair, independent bits are so too."""
    found, coin = _draws(trial), trial.call()["coin"]
    coins = {"row": found[:, :, :1], "call": found[:, :1, :1]}.get(coin, found)
    places = (
        (2, "from one position to the next"),
        (1, "from one row of the batch to the next"),
        (0, "from one call to the next"),
    )
    for axis, where in places:
        pairs = coins.shape[axis] - 1
        if pairs < 1:
            continue
        left, right = np.take(coins, range(pairs), axis), np.take(coins, range(1, pairs + 1), axis)
        agree, draws = int((left == right).sum()), left.size
        if unlikely(agree, draws, 0.5):
            always = ": one draw decides for all of them" if agree == draws else ""
            raise Violation(
                f"{where} the choice stayed the same in {agree} of {draws} cases, "
                f"where independent draws at probability 0.5 agree in about half{always}",
                Difference(f"about {draws // 2} of {draws}", f"{agree} of {draws}"),
            )

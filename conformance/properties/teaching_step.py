"""Properties of a training step: what a recording stand-in model was shown, and the loss that came back."""

from __future__ import annotations

import numpy as np

from ..candidates.teaching_loss import cross_entropies
from ..engine.trial import Difference, Trial, Violation
from .teaching import close, previous_tokens

__all__ = ["shown_once", "shown_shifted", "step_loss", "step_memory", "step_update"]


def shown_shifted(trial: Trial) -> None:
    """What the decoder was given, against target[:-1]."""
    shown, target = trial.call()["shown"], trial.inputs["target"]
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
    previous_tokens(shown[0], target)


def _prefix(part: np.ndarray, expected: np.ndarray) -> bool:
    """Whether a part of the shifted target was shown: its beginning, or one position of it."""
    n = part.shape[-1]
    if part.size == len(expected) and any(np.array_equal(part.reshape(-1), column) for column in expected.T):
        return True
    return part.shape[0] == len(expected) and np.array_equal(part, expected[:, :n])


def shown_once(trial: Trial) -> None:
    """The number of decodings."""
    results = trial.call()
    if results["decodings"] != 1:
        parts = [part.tolist() for part in results["shown"]]
        raise Violation(
            f"the decoder was asked {results['decodings']} times, expected once for all positions together",
            Difference([trial.inputs["target"][:, :-1].tolist()], parts),
        )


def step_memory(trial: Trial) -> None:
    """The encoder's output, or the source, arrives at the model."""
    results = trial.call()
    if not results["passed"]:
        raise trial.skip("it takes neither a source nor an encoder's output")
    for name in results["passed"]:
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
    """Cross-entropy of the stand-in's logits against target[1:]; what a label weighs is a convention."""
    results, target = trial.call(), trial.inputs["target"]
    if results["loss"] is None:
        raise trial.skip("it does not return its loss")
    real, weights = results["real"], results["weights"]
    losses = cross_entropies(trial.inputs["table"][target[:, :-1]], target[:, 1:], real)
    expected = float((weights * losses).sum())
    allowed = 2e-5 * max(1.0, float(weights.sum()))
    close(trial, results["loss"], expected, allowed, "the loss that the step returned")


def step_update(trial: Trial) -> None:
    """Gradients forgotten, then computed from this loss, then one step of the optimizer."""
    results = trial.call()
    events = results["events"]
    expected = "zero_grad, backward, step"
    difference = Difference(expected, ", ".join(events) or "nothing")
    if "backward" not in events:
        raise Violation(
            "no gradient of the loss reached the model's answer: loss.backward() was not called", difference
        )
    last = len(events) - 1 - events[::-1].index("backward")
    if "step" not in events:
        raise Violation("the optimizer was never asked to step", difference)
    if "step" not in events[last:]:
        raise Violation("the optimizer stepped before the gradient was there", difference)
    step = events.index("step", last)
    if "zero_grad" in events[last:step]:
        raise Violation("the gradient was forgotten before the optimizer stepped", difference)
    if "zero_grad" not in events:
        if results["by_hand"]:
            raise trial.skip("it handles the gradients of parameters itself, and may forget them so")
        raise Violation(
            "old gradients are never forgotten: the next step would go along the sum of both", difference
        )

"""Properties of models that encode a source first and decode then."""

from __future__ import annotations

import numpy as np

from ..candidates.encoder_decoder import EncoderDecoderSubject
from ..candidates.models import other_words
from ..engine.trial import Difference, Trial, Violation
from .models import error_allowed, model_of, silent

__all__ = [
    "decode_after_encode",
    "decode_reads_memory",
    "encoder_sees_all",
]


def decode_after_encode(trial: Trial) -> None:
    """forward(src, tgt) against decode(tgt, encode(src))."""
    model = model_of(trial)
    assert isinstance(model, EncoderDecoderSubject)
    steps = model.stepwise()
    whole, joined = trial.call()["output"], steps.call(trial.inputs)["output"]
    what = "the score of decode(tgt, encode(src)) against that of one call"
    trial.same(joined, whole, what, error_allowed(trial, whole))


def decode_reads_memory(trial: Trial) -> None:
    """decode with the memory of one source, after another one was encoded."""
    model = model_of(trial)
    assert isinstance(model, EncoderDecoderSubject)
    steps = model.stepwise() if model.whole else model
    if steps.encoder is None or not steps.batched:
        raise trial.skip("it has no encode(src) beside its decode(tgt, memory)")
    other = model.disturbed(trial.inputs, np.ones(trial.inputs["src"].shape, dtype=bool))
    expected = steps.call(trial.inputs)["output"]
    what = "decode was given the memory of one source after another was encoded too: its score"
    trial.same(steps.after_another(trial.inputs, other), expected, what, error_allowed(trial, expected))


def encoder_sees_all(trial: Trial) -> None:
    """An encoder that mixes positions has no causal triangle."""
    model = model_of(trial)
    assert isinstance(model, EncoderDecoderSubject)
    src = trial.inputs["src"]
    S = src.shape[1]
    variants = []
    for j in range(S):
        changed = src.copy()
        changed[:, j] = other_words(changed[:, j], model.words("src"))
        variants.append(trial.inputs.replaced(src=changed))
    before, *after = model.memories([trial.inputs, *variants])
    moved = np.stack([np.abs(a - before).max(axis=(0, 2)) for a in after]) > silent(trial)  # (j, row)
    if not (moved & ~np.eye(S, dtype=bool)).any():
        raise trial.skip("its encode does not mix positions")
    if not moved[S - 1, 0]:
        trial.shown = {"src": variants[-1]["src"]}
        raise Violation(
            "the last source token was replaced, but the first row of memory did not change, "
            "though encode mixes positions: with 1 for a token j that changes row i, the encoder sees",
            Difference(np.ones((S, S), dtype=int).tolist(), moved.T.astype(int).tolist(), (0, S - 1)),
        )

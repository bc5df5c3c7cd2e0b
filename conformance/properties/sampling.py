"""Properties of the distribution of the next token: temperature, top-k, top-p."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..candidates.errors import CallFailed
from ..engine.cases import Inputs
from ..engine.trial import Difference, Trial, Violation, number

__all__ = [
    "entropy_grows",
    "finite_at_zero",
    "follows_distribution",
    "greedy_at_zero",
    "is_distribution",
    "k_beyond_vocabulary",
    "k_zero",
    "keeps_ratios",
    "keeps_set",
    "keeps_ties",
    "mass_is_reached",
    "rows_alone",
    "temperature_limits",
    "vocabulary_order",
]

NEAR = 1e-5  # correct float32 probabilities err by less than 1e-6
GONE = 1e-6  # a token with less has been removed

_SETTINGS = ("temperature", "top_k", "top_p")
_known: dict[tuple[Any, ...], np.ndarray] = {}


def expected(inputs: Mapping[str, Any]) -> np.ndarray:
    """(B, V) float64 from the baseline's parts, in the order that ``inputs`` name."""
    settings = {name: inputs.get(name) for name in _SETTINGS}
    logits, order = inputs["logits"], str(inputs.get("order", ""))
    key = (logits.tobytes(), logits.dtype.str, logits.shape, *settings.values(), order)
    found = _known.get(key)
    if found is None:
        if len(_known) > 5000:
            _known.clear()
        found = _known[key] = _expected(logits, settings, order)
    return found


def _expected(logits: np.ndarray, settings: Mapping[str, Any], order: str) -> np.ndarray:
    import torch

    from ...reference.baseline import sampling

    whole = torch.from_numpy(np.array(logits, dtype=np.float64))
    temperature = settings["temperature"] or 1.0
    k = settings["top_k"] or whole.size(-1)
    p = 1.0 if settings["top_p"] is None else settings["top_p"]
    scaled = sampling.apply_temperature(whole, temperature)
    judged = scaled if not order or order.startswith("temperature") else whole  # what the filters look at
    kept = sampling.top_k_filter(judged, k)
    nucleus = sampling.top_p_filter(judged if "top_p_top_k" in order else kept, p)
    removed = torch.isinf(kept) | torch.isinf(nucleus)
    return scaled.masked_fill(removed, float("-inf")).softmax(dim=-1).numpy()


def _probabilities(trial: Trial, inputs: Inputs | None = None) -> np.ndarray:
    return trial.result("probabilities", inputs)


def _without(inputs: Inputs, *names: str) -> Inputs:
    return inputs.replaced(**dict.fromkeys(names))


def _set(row: np.ndarray) -> list[int]:
    return [int(token) for token in np.flatnonzero(row)]


def described(inputs: Mapping[str, Any]) -> str:
    """The settings of a case in words, ``with temperature 0.5 and top_p 0.9``."""
    given = [f"{name} {number(inputs[name])}" for name in _SETTINGS if inputs.get(name) is not None]
    if given:
        return f"with {' and '.join(given)}"
    return (
        f"with every setting off ({inputs['neutral']})" if inputs.get("neutral") else "with every setting off"
    )


def row_of(values: np.ndarray, b: int) -> str:
    return f"row {b}: " if len(values) > 1 else ""


def shown(row: np.ndarray) -> list[float]:
    return [float(f"{value:.5g}") for value in row]


# the distribution


def is_distribution(trial: Trial) -> None:
    """Every row is finite, not negative, and sums to 1."""
    observed = _probabilities(trial)
    for b, row in enumerate(observed):
        place = f"{row_of(observed, b)}{described(trial.inputs)}"
        if np.isnan(row).any() or np.isinf(row).any():
            raise Violation(f"{place} the probabilities are not finite", Difference("finite", shown(row)))
        if (row < -NEAR).any():
            raise Violation(f"{place} a probability is negative", Difference(">= 0", shown(row)))
        if abs(row.sum() - 1) > NEAR:
            raise Violation(
                f"{place} the probabilities sum to {number(row.sum())}, expected 1",
                Difference(1.0, shown(row)),
            )
        trial.margin = max(trial.margin, abs(float(row.sum()) - 1) / NEAR)


def follows_distribution(trial: Trial) -> None:
    """The probabilities are those of the rule."""
    what = f"{described(trial.inputs)} the probability"
    trial.same(_probabilities(trial), expected(trial.inputs), what, NEAR)


def entropy_grows(trial: Trial) -> None:
    """The entropy at rising temperatures."""
    last, before = np.zeros(len(trial.inputs["logits"])), ""
    for temperature in (0.5, 1.0, 2.0, 4.0):
        observed = _probabilities(trial, trial.inputs.replaced(temperature=temperature))
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = -np.where(observed > 0, observed * np.log(observed), 0.0).sum(axis=-1)
        for b in range(len(entropy)):
            # near the uniform distribution there is little to gain
            room = math.log(observed.shape[-1]) - last[b] > 1e-3
            if before and entropy[b] < last[b] + (1e-6 if room else -1e-6):
                raise Violation(
                    f"{row_of(observed, b)}the entropy is {number(last[b])} at temperature {before} and "
                    f"{number(entropy[b])} at {temperature:g}; a higher temperature makes the distribution flatter",
                    Difference(f"more than {number(last[b])}", float(f"{entropy[b]:.5g}")),
                )
        last, before = entropy, f"{temperature:g}"


def temperature_limits(trial: Trial) -> None:
    """Close to 0 the likeliest token has everything; at a very high temperature all have the same."""
    logits = trial.inputs["logits"]
    cold = _probabilities(trial, trial.inputs.replaced(temperature=0.001))
    best = (logits == logits.max(axis=-1, keepdims=True)).astype(np.float64)
    trial.same(cold, best, "at temperature 0.001 the probability", 1e-4)
    hot = _probabilities(trial, trial.inputs.replaced(temperature=1e5))
    trial.same(hot, np.full(hot.shape, 1 / hot.shape[-1]), "at temperature 100000 the probability", 1e-3)


def at_zero(trial: Trial, logits: np.ndarray) -> dict[str, Any] | None:
    """The results at temperature 0; None where that is refused with an error of Python's."""
    try:
        return trial.call(trial.inputs.replaced(temperature=0.0, logits=logits))
    except CallFailed as error:
        if error.kind == "exception":
            return None
        raise


def finite_at_zero(trial: Trial) -> None:
    """Temperature 0 gives numbers, or an error."""
    results = at_zero(trial, trial.inputs["logits"])
    if results is not None and not np.isfinite(results["probabilities"]).all():
        row = results["probabilities"][~np.isfinite(results["probabilities"]).all(axis=-1)][0]
        raise Violation(
            "at temperature 0 the probabilities are not numbers, and nothing says so",
            Difference("the likeliest token, or an error", shown(row)),
        )


def greedy_at_zero(trial: Trial) -> None:
    """Temperature 0 is greedy, or an error; or means off where that is declared.  NaN is ``finite_at_zero``'s."""
    results, logits = at_zero(trial, trial.inputs["logits"]), trial.inputs["logits"]
    if results is None:
        return
    observed = results["probabilities"]
    if not np.isfinite(observed).all():
        raise trial.skip("it gives no numbers at temperature 0")
    off = trial.inputs.get("zero") == "off"
    right = expected({"logits": logits}) if off else np.eye(logits.shape[-1])[logits.argmax(axis=-1)]
    trial.same(observed, right, "at temperature 0 the probability", 1e-4)


def keeps_set(trial: Trial) -> None:
    """Which tokens have a probability at all."""
    observed, right = _probabilities(trial), expected(trial.inputs)
    if observed.shape != right.shape:
        trial.same(observed, right, "the probability", NEAR)
    for b, row in enumerate(observed):
        if not np.isfinite(row).all():
            raise Violation(
                f"{row_of(observed, b)}{described(trial.inputs)} the probabilities are not finite",
                Difference(_set(right[b] > 0), shown(row)),
            )
        kept, wanted = row > GONE, right[b] > 0
        if (kept != wanted).any():
            raise Violation(
                f"{row_of(observed, b)}{described(trial.inputs)} "
                f"{_kept(kept)}; expected {_named(wanted)}{_why(trial.inputs, b, kept)}",
                Difference(shown(right[b]), shown(row)),
            )


def _count(kept: np.ndarray) -> str:
    return "1 token is" if kept.sum() == 1 else f"{int(kept.sum())} tokens are"


def _named(kept: np.ndarray) -> str:
    found = _set(kept)
    if not found:
        return "no token"
    return f"token {found[0]}" if len(found) == 1 else f"tokens {', '.join(map(str, found))}"


def _kept(kept: np.ndarray) -> str:
    return f"{_named(kept)} {'are' if kept.sum() > 1 else 'is'} kept"


def listed(kept: np.ndarray) -> str:
    return ", ".join(map(str, _set(kept))) or "none"


def _why(inputs: Mapping[str, Any], b: int, kept: np.ndarray) -> str:
    """What a set of tokens looks like: the usual misconceptions of top-k and top-p by their effect."""
    p, k = inputs.get("top_p"), inputs.get("top_k")
    logits = inputs["logits"][b].astype(np.float64)
    if p is None:
        if k is not None and kept.sum() == min(k, len(logits)):
            return ". This is not the largest logit" if k == 1 else f". These are not the {k} largest logits"
        return ""
    if k is None and inputs.get("temperature") in (None, 1.0):
        plain = expected({"logits": logits[None]})[0]
        if (kept == (plain > p)).all():
            return f". These are the tokens that have more than {p:g} each; p bounds the sum of the likeliest ones"
        mass = float(plain[kept].sum())
        front = logits[kept].min(initial=np.inf) > logits[~kept].max(initial=-np.inf)
        if front and mass < p:
            return f" (mass {mass:.3g}). The token with which the sum reaches {p:g} belongs to the set"
        if front:
            return f" (mass {mass:.3g}). Fewer reach {p:g} already"
        return ". They are not the likeliest ones"
    return ""


def mass_is_reached(trial: Trial) -> None:
    """The kept tokens have at least p of the whole distribution."""
    observed, p = _probabilities(trial), trial.inputs["top_p"]
    whole = expected(_without(trial.inputs, "top_p"))
    for b, row in enumerate(observed):
        kept = row > GONE
        mass = float(whole[b][kept].sum())
        if mass < p - NEAR:
            why = _why(trial.inputs, b, kept).partition(". ")[2]
            raise Violation(
                f"{row_of(observed, b)}{described(trial.inputs)} {_kept(kept)}, with {mass:.4g} of the "
                f"distribution; expected at least {p:g}{'. ' + why if why else ''}",
                Difference(_set(expected(trial.inputs)[b] > 0), _set(kept)),
            )


def keeps_ratios(trial: Trial) -> None:
    """Among the tokens that are kept, the probabilities are the softmax of their logits over the temperature."""
    observed = _probabilities(trial)
    scaled = trial.inputs["logits"].astype(np.float64) / (trial.inputs.get("temperature") or 1.0)
    for b, row in enumerate(observed):
        kept = row > GONE
        if not kept.any() or not np.isfinite(row).all():
            raise Violation(f"{row_of(observed, b)}{described(trial.inputs)} no token has a probability")
        powers = np.exp(scaled[b] - scaled[b][kept].max()) * kept
        right = powers / powers.sum()
        what = (
            f"{row_of(observed, b)}{described(trial.inputs)} tokens {listed(kept)} are kept; their softmax"
            " gives other numbers: the probability"
        )
        trial.same(row, right, what, 2 * NEAR)


def keeps_ties(trial: Trial) -> None:
    """Of tokens that share the k-th largest logit either all are kept, or as many as make k."""
    observed, logits, k = _probabilities(trial), trial.inputs["logits"], trial.inputs["top_k"]
    for b, row in enumerate(observed):
        kept = row > GONE
        border = np.sort(logits[b])[-k]
        above, equal = logits[b] > border, logits[b] == border
        wanted = int((above | equal).sum()) if trial.inputs.get("ties") == "all_equal" else k
        if kept.sum() == wanted and not (kept & ~(above | equal)).any() and not (above & ~kept).any():
            continue
        rule = (
            f"all {wanted} that are not below the k-th largest logit"
            if wanted != k
            else f"{k}, one or more of the equal ones among them"
        )
        raise Violation(
            f"{row_of(observed, b)}{described(trial.inputs)}, where tokens {listed(equal)} share the k-th "
            f"largest logit, {_count(kept)} kept ({listed(kept)}); expected {rule}",
            Difference(f"{wanted} tokens", shown(row)),
        )


def k_beyond_vocabulary(trial: Trial) -> None:
    """A k that is larger than the vocabulary keeps everything, or is refused."""
    try:
        observed = _probabilities(trial)
    except CallFailed as error:
        if error.kind == "exception":
            return
        raise
    V = trial.case["V"]
    right = expected(_without(trial.inputs, "top_k"))
    trial.same(observed, right, f"with top_k {trial.inputs['top_k']} of {V} tokens the probability", NEAR)


def k_zero(trial: Trial) -> None:
    """top_k = 0 means off, or the least that can be kept, or is refused; it is no empty distribution."""
    inputs = trial.inputs.replaced(top_k=0)
    try:
        observed = _probabilities(trial, inputs)
    except CallFailed as error:
        if error.kind == "exception":
            return
        raise
    one = expected(trial.inputs.replaced(top_k=1))
    if observed.shape == one.shape and np.isfinite(observed).all() and np.abs(observed - one).max() <= NEAR:
        return
    trial.same(observed, expected(_without(inputs, "top_k")), "with top_k 0 the probability", NEAR)


def vocabulary_order(trial: Trial) -> None:
    """The same logits in another order give the same probabilities in that order."""
    before = _probabilities(trial)
    V = before.shape[-1]
    order = trial.case.rng.permutation(V)
    if (order == np.arange(V)).all():
        order = order[::-1]
    turned = trial.inputs.replaced(logits=np.ascontiguousarray(trial.inputs["logits"][:, order]))
    after = _probabilities(trial, turned)
    what = (
        f"{described(trial.inputs)}, after the tokens were put in the order {order.tolist()}, the probability"
    )
    trial.inputs = turned
    trial.same(after, before[:, order], what, NEAR)


def rows_alone(trial: Trial) -> None:
    """Each row of a batch is what it is alone."""
    whole = _probabilities(trial)
    for b in range(len(whole)):
        alone = _probabilities(trial, trial.inputs.replaced(logits=trial.inputs["logits"][b : b + 1]))
        what = (
            f"{described(trial.inputs)} row {b} of the batch differs from the same row alone: the probability"
        )
        trial.same(whole[b : b + 1], alone, what, NEAR)

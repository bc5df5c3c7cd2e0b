"""Properties of layers and stacks that are recomputed with their own weights."""

from __future__ import annotations

from copy import copy

import numpy as np

from ..candidates.errors import CallFailed
from ..candidates.heads import OF_KEYS, MultiheadSubject
from ..candidates.layers import LayerSubject
from ..candidates.models import ModelSubject
from ..candidates.subject import kept
from ..engine import blueprints, stacks
from ..engine.cases import Case, Inputs, OutOfDomain, Unseen, normal
from ..engine.matching import Departs, Grouped, Matched, Undetermined
from ..engine.trial import Difference, Trial, Violation, focus, marked
from .layers import layer_of

__all__ = [
    "recomputed",
    "recomputed_stack",
]


BY_CODE = "by its code"
GATES = ("gated_silu", "gated_gelu", "gated_gelu_tanh")


def matching(trial: Trial) -> Matched:
    """The layer beside a reference with its weights; found once for each size, and told again where it failed."""
    subject = layer_of(trial)
    # A new worker builds its objects anew, with weights of its own.
    key = (trial.case["h"], trial.case["d"], subject.session.generation)
    found = subject.matches.get(key)
    if found is None:
        try:
            found = _matched(subject, trial.case)
            for name, value in found.blueprint.conventions.items():
                if subject.conventions.get(name, ("", ""))[1] != "declared":
                    subject.probed(name, value)
        except (Departs, Undetermined, CallFailed, OutOfDomain) as error:
            found = kept(error)
        subject.matches[key] = found
    if isinstance(found, Departs):
        difference = None
        subject.last_calls = ()  # weights were set from outside; no call alone shows that
        if found.expected is not None and found.observed is not None:
            difference = _difference(found.expected, found.observed)
        raise Violation(found.what, difference, found.mutant)
    if isinstance(found, Grouped):
        raise trial.skip(f"keys and values are shared by heads, as in grouped-query attention: {found}")
    if isinstance(found, Undetermined):
        raise Unseen(f"its weights cannot be carried over to the reference: {found}")
    if isinstance(found, CallFailed | OutOfDomain):
        raise copy(found)
    return found


def _matched(subject: LayerSubject, case: Case) -> Matched:
    """With the activation that is taught, or else with one that the candidate's code asks for by name.

    A gated feed-forward that was probed is another kind of layer: it fails for a known mistake, or a missing residual.
    """
    taught = subject.conventions.get("activation")
    if taught is None:
        return blueprints.matched(subject, case)
    value, how = taught
    gated = value == "gated"
    asked = [] if how in ("declared", BY_CODE) else subject.asked_activations
    failure: Departs | Undetermined | None = None
    for way in GATES if gated else (value, *asked):
        subject.conventions["activation"] = (way, how if way == value else BY_CODE)
        try:
            found = blueprints.matched(subject, case)
        except (Departs, Undetermined) as error:
            if not gated and isinstance(error, Undetermined):
                raise
            if failure is None or (isinstance(error, Departs) and error.known):
                failure = error
        else:
            if gated:
                subject.conventions["activation"] = taught
            return found
    subject.conventions["activation"] = taught
    assert failure is not None
    told = isinstance(failure, Departs) and (failure.known or failure.part == "norms and residuals")
    if gated and how == "probed" and not told:
        raise OutOfDomain("its feed-forward is a gated one, and no reference here is like it")
    raise failure


def recomputed_stack(trial: Trial) -> None:
    """A decoder stack against the reference with the same weights, in whatever form it has.

    Stacks differ in more than can be listed: one that follows no known form is left to other claims, and
    only one that follows a known mistake fails.
    """
    subject = trial.subject
    assert isinstance(subject, ModelSubject)
    if subject.takes != "ids" or not subject.batched or subject.form != "(B, T, V)":
        raise trial.skip("it is no stack from ids to a score for every word at every position")
    if not (subject.settable("V") and subject.settable("n_layers")):
        raise trial.skip("its vocabulary or its number of layers cannot be set")
    if not subject.has("gradient"):
        raise trial.skip("its weights would have to be told apart by differences, one by one")
    key = (subject.session.generation,)
    found = subject.matches.get(key)
    if found is None:
        try:
            found = stacks.matched_stack(subject, trial.case)
        except (Departs, Undetermined, CallFailed) as error:
            found = kept(error)
        subject.matches[key] = found
    if isinstance(found, Departs) and found.known:
        raise Violation(found.what, mutant=found.mutant)
    if isinstance(found, Departs | Undetermined):
        raise trial.skip(f"it follows none of the forms that are known here: {found}")
    if isinstance(found, CallFailed):
        raise copy(found)
    inputs = trial.inputs
    observed = subject.variation(variant="weights", loud=False).run(inputs)["output"]
    expected = found.expected(inputs)
    allowed = (2e-4 if found.single else 1e-5) * max(1.0, float(np.abs(expected).max()))
    subject.last_calls = ()
    trial.same(observed, expected, "with its own weights, the score", allowed)


def _difference(expected: np.ndarray, observed: np.ndarray) -> Difference:
    if expected.shape != observed.shape:
        return Difference(f"shape {list(expected.shape)}", f"shape {list(observed.shape)}")
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(expected - observed) <= 1e-6)
    index = tuple(int(n) for n in np.argwhere(wrong)[0]) if wrong.any() else (0,) * expected.ndim
    shown, inner = focus(observed, index)
    return Difference(focus(expected, index)[0], shown, inner, marked(wrong, index))


def recomputed(trial: Trial) -> None:
    """Output, weights and gradients against the reference with the same weights."""
    subject = layer_of(trial)
    first = trial.claim.domain.dimensions["d"][0]
    if first % 2 and not trial.case["d"] % 2 and "d" not in subject.limits:
        raise trial.skip("an even width is for layers that do not take an odd one")
    found = matching(trial)
    own, inputs = subject.apart("weights"), recomputed_inputs(trial)
    observed = own.run(inputs)
    if getattr(subject, "causal", False) and inputs.get("allowed") is not None:
        past = np.tri(inputs["query"].shape[1], dtype=bool)
        if not (inputs["allowed"] & past).any(axis=2).all():
            raise trial.skip("a query sees nothing")
    expected = found.expected(inputs)
    scale = max(1.0, float(np.abs(expected).max()))
    allowed = (2e-4 if found.single else 1e-5) * scale
    subject.last_calls = ()  # its weights were set from outside; no call alone shows that
    real = _real_queries(subject, inputs)
    where = None if real is None else np.broadcast_to(real[:, :, None], expected.shape)
    trial.same(observed["output"], expected, "with its own weights, the output", allowed, where)
    if "weights" in observed:
        _same_weights(trial, observed["weights"], found, inputs, allowed, real)
    if subject.has("gradient") and not subject.unbatched:
        _same_gradients(trial, found, own, inputs, expected.shape, allowed, real)


def _real_queries(subject: LayerSubject, inputs: Inputs) -> np.ndarray | None:
    """The queries that are no padding, (B, T), where one sequence goes in with a mask of its padded keys.

    What a padded query gets is nobody's business: a layer may let it see itself, so that no row is empty.
    """
    allowed = inputs.get("allowed")
    if not isinstance(subject, MultiheadSubject) or subject.form != "self" or allowed is None:
        return None
    given = subject.given.get(subject.mask_argument)
    if given is None or not {*given.forms, *given.taken} <= OF_KEYS:
        return None
    return allowed.any(axis=1)


def recomputed_inputs(trial: Trial) -> Inputs:
    """The inputs of a case with its mask where the reference looks for it."""
    subject = layer_of(trial)
    inputs = subject.default(trial.inputs)
    if "mask" in inputs and inputs["mask"] is not None and subject.has("mask"):
        inputs = inputs.replaced(allowed=inputs["mask"])
    return inputs


def _same_weights(
    trial: Trial,
    observed: np.ndarray,
    found: Matched,
    inputs: Inputs,
    allowed: float,
    real: np.ndarray | None,
) -> None:
    """Weights of heads in any order, or averaged over them; those of ``real`` queries, if these are told."""
    expected = found.weights(inputs)
    if expected is None:
        return
    if real is not None and observed.shape[:1] + observed.shape[-2:-1] == real.shape:
        expected = np.where(real[:, None, :, None], expected, 0.0)
        observed = np.where(real[:, :, None] if observed.ndim == 3 else real[:, None, :, None], observed, 0.0)
    if observed.ndim == expected.ndim - 1:
        trial.same(observed, expected.mean(axis=1), "with its own weights, the averaged weight", allowed)
        return
    if observed.shape != expected.shape:
        return  # the claim on their shape tells that
    free = list(range(expected.shape[1]))
    for head in range(expected.shape[1]):
        errors = {n: float(np.abs(observed[:, head] - expected[:, n]).max()) for n in free}
        nearest = min(errors, key=lambda n: errors[n])
        trial.same(
            observed[:, head],
            expected[:, nearest],
            f"with its own weights, the attention weight of head {head}",
            allowed,
        )
        free.remove(nearest)


def _same_gradients(
    trial: Trial,
    found: Matched,
    own: LayerSubject,
    inputs: Inputs,
    shape: tuple[int, ...],
    allowed: float,
    real: np.ndarray | None,
) -> None:
    names = [name for name in own.sequences if name in own.binding.arguments]
    if any(own.binding.arguments[name].position is not None for name in names):
        return
    if len({id(inputs[name]) for name in names}) < len(names):
        inputs = inputs.replaced(**{name: inputs[name].copy() for name in names})
    cotangent = normal(trial.case.rng, shape, 1.0)
    if real is not None:
        cotangent = np.where(real[:, :, None], cotangent, 0.0)
    (call,) = own.calls_for(inputs)
    wrt = [own.binding.arguments[name].name for name in (*names, "keys") if name in own.binding.arguments]
    gradients = own.session.vjp(call, wrt, own.pick, own.array(own.to_own(cotangent)))
    if gradients is None:
        raise Violation("no gradient flows from its output to its input")
    values = [own.turn(gradient.values) for gradient in gradients]
    if len(values) > len(names):  # one sequence that is handed over twice
        values = [values[0] + values.pop(), *values[1:]]
    expected = found.gradient(inputs, names, cotangent)
    for name, gradient, right in zip(names, values, expected, strict=True):
        scale = max(1.0, float(np.abs(right).max()))
        what = f"with its own weights, the gradient with respect to {own.binding.arguments[name].name}"
        trial.same(gradient, right, what, 10 * allowed * scale)

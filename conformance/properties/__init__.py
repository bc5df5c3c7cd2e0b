"""The kinds of check that claims name: functions of a trial, by the names they have in ``spec/properties``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..engine.trial import Trial
from . import (
    attention,
    caching,
    clones,
    drawing,
    encoder_decoder,
    general,
    generation,
    generation_choice,
    language,
    language_generation,
    layers,
    masks,
    model_layers,
    models,
    multihead,
    parameters,
    positions,
    recomputed,
    sampling,
    teaching,
    teaching_sampling,
    teaching_step,
)

Property = Callable[..., None]


def _public(module: Any) -> dict[str, Property]:
    return {name: getattr(module, name) for name in module.__all__}


PROPERTIES: dict[str, Property] = {
    name: check
    for module in (
        general,
        masks,
        attention,
        layers,
        parameters,
        recomputed,
        multihead,
        positions,
        models,
        model_layers,
        encoder_decoder,
        clones,
        language,
        language_generation,
        caching,
        generation,
        generation_choice,
        sampling,
        drawing,
        teaching,
        teaching_step,
        teaching_sampling,
    )
    for name, check in _public(module).items()
}


def apply(trial: Trial) -> None:
    """Check the trial's claim on its case.  Raises Violation, CallFailed or OutOfDomain."""
    PROPERTIES[trial.claim.property_name](trial, **trial.claim.arguments)


__all__ = ["PROPERTIES", "apply"]

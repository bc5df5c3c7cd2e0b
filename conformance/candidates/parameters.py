"""Matches the parameters of a candidate's object with the arguments of a role, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...spec import Argument, Role
from .names import bare, counted, plain


@dataclass(frozen=True)
class Parameter:
    """Where an argument goes: the parameter's name, or its position if it is positional only."""

    name: str
    position: int | None = None
    has_default: bool = False
    also: tuple[str, ...] = ()  # settings that say the same and get the same
    fixed: bool = False  # its default is a number, right for other sizes than those of a case


def match_call(
    role: Role, parameters: Sequence[Mapping[str, Any]], renamed: Mapping[str, str]
) -> dict[str, Parameter] | str:
    matched = match(_with_lone_sequence(role, parameters, renamed), role.arguments, renamed)
    if isinstance(matched, str):
        return matched
    matched = _with_mask_of_another_name(role, parameters, matched)
    missing = _missing(role, matched)
    if {"lengths", "ids"} <= matched.keys():
        return "takes both token ids and lengths, where the role takes one of them"
    if missing:
        return f"has no parameter for {named(role.arguments, missing)}"
    return matched


# What a mask is called where it has none of the known names, in some languages; and what only looks so.
LIKE_A_MASK = re.compile(
    r"mas[kqc]|msk|^m$|bias|^causal|future|ahead|zukunft|visible|sichtbar|blocked|forbid|allow|hide|triang|^tri[lu]$",
    re.IGNORECASE,
)
NO_MASK = re.compile(
    r"head_?mask|(^|_)(pos|rel|position|relative)(_|$)|alibi|masked_?(lm|token|id)|layer|drop"
    r"|(^|_)(fn|func|function|mod|value|val|token|type|kind|ratio|prob|size|init|dim|id|idx)(_|$)",
    re.IGNORECASE,
)


def _with_mask_of_another_name(
    role: Role, parameters: Sequence[Mapping[str, Any]], matched: dict[str, Parameter]
) -> dict[str, Parameter]:
    """With the one further parameter, None by default, that is a mask by its name, where the role takes a mask."""
    masks = [a.name for a in role.arguments if a.kind == "mask"]
    free = [name for name in ("mask", "causal_mask", "tgt_mask") if name in masks]
    if not free or set(masks) & matched.keys():
        return matched
    flags = {place.name: name for name, place in matched.items() if name == "is_causal"}
    known = {place.name for place in matched.values()} - flags.keys()
    like = [
        p
        for p in parameters
        if p["has_default"] and p["default"] is None and p["name"] not in known
        and p["kind"] in ("POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")
        and LIKE_A_MASK.search(p["name"]) and not NO_MASK.search(p["name"])
    ]  # fmt: skip
    if len(like) != 1:
        return matched
    name = like[0]["name"]
    rest = {argument: place for argument, place in matched.items() if place.name != name}
    return {**rest, free[0]: Parameter(name, None, True)}


def _missing(role: Role, matched: Mapping[str, Parameter]) -> list[str]:
    return [
        a.name
        for a in role.arguments
        if a.required and a.name not in matched and not (a.unless and a.unless in matched)
    ]


def _with_lone_sequence(
    role: Role, parameters: Sequence[Mapping[str, Any]], renamed: Mapping[str, str]
) -> Sequence[Mapping[str, Any]]:
    """The parameters of a layer that needs one thing alone, of whatever name: that is the sequence it works on."""
    lone = [p for p in parameters if not p["has_default"] and p["kind"] == "POSITIONAL_OR_KEYWORD"]
    sequences = [a for a in role.arguments if a.required and a.kind in ("array", "ids") and not a.unless]
    if len(lone) != 1 or len(sequences) != 1 or renamed or role.id not in LONE:
        return parameters
    known = {plain(name) for argument in role.arguments for name in (argument.name, *argument.names)}
    if {plain(lone[0]["name"]), bare(lone[0]["name"])} & known:
        return parameters
    return [{**p, "spelled": sequences[0].name} if p is lone[0] else p for p in parameters]


# Roles whose objects are layers or models: nobody calls anything else so.
LONE = (
    "causal_self_attention", "decoder_only_block", "encoder_block", "feed_forward", "language_model", "layer_norm",
    "cached_attention", "multihead_attention",
)  # fmt: skip


def named(arguments: Sequence[Argument], missing: Iterable[str]) -> str:
    known = {a.name: a for a in arguments}
    return " and ".join(f"{name} (recognised: {', '.join(known[name].names[:6])}, …)" for name in missing)


def match(
    parameters: Sequence[Mapping[str, Any]], arguments: Sequence[Argument], renamed: Mapping[str, str]
) -> dict[str, Parameter] | str:
    """Canonical argument → parameter, or a sentence's end that says what does not fit."""
    by_parameter = {parameter: name for name, parameter in renamed.items()}
    matched: dict[str, Parameter] = {}
    unknown: list[str] = []
    left = []
    for position, parameter in enumerate(parameters):
        if parameter["kind"] in ("VAR_POSITIONAL", "VAR_KEYWORD"):
            continue
        place = Parameter(
            parameter["name"],
            position if parameter["kind"] == "POSITIONAL_ONLY" else None,
            parameter["has_default"],
            fixed=type(parameter.get("default")) is int and parameter["default"] > 0,
        )
        parameter = {**parameter, "name": parameter.get("spelled", parameter["name"])}
        if parameter["name"] in by_parameter:
            matched[by_parameter[parameter["name"]]] = place
        else:
            left.append((parameter, place))
    left = _special_masks_first(left, arguments)
    # In turn: the spelling as it is (K beside k), without case and separators, without words around it.
    for step in (str, plain, bare):
        still = []
        for parameter, place in left:
            name = argument_for(parameter["name"], arguments, matched, step)
            if name is None:
                still.append((parameter, place))
            else:
                matched[name] = place
        left = still
    left = _counted_and_dropped(left, arguments, matched)
    for argument in arguments:  # a lone S is the length that is required, not the second one that is not
        if argument.required and argument.name not in matched and argument.unless not in matched:
            for other in arguments:
                place = matched.get(other.name)
                if place is not None and not other.required and place.name in argument.names:
                    matched[argument.name] = matched.pop(other.name)
                    break
    for parameter, place in left:  # a setting beside the parameter that says the same, or beside another one
        name = argument_for(parameter["name"], arguments, {}, plain)
        width = name == "d_model" and not parameter["has_default"] and place.position is None
        if name in matched and ("spelled" in parameter or width):  # input_dim beside embed_dim, too
            matched[name] = replace(matched[name], also=(*matched[name].also, place.name))
        elif not parameter["has_default"]:
            unknown.append(place.name)
    if unknown:
        return f"needs {', '.join(map(repr, unknown))}, which is none of the role's arguments"
    return matched


def _special_masks_first(
    left: list[tuple[dict[str, Any], Parameter]], arguments: Sequence[Argument]
) -> list[tuple[dict[str, Any], Parameter]]:
    """Of several masks for one argument the one named first in the spec: ``context_mask`` before ``mask``."""
    order = {
        plain(n): k for a in arguments if a.kind == "mask" for k, n in reversed(list(enumerate(a.names)))
    }
    places = [n for n, (parameter, _) in enumerate(left) if plain(parameter["name"]) in order]
    ranked = sorted((left[n] for n in places), key=lambda item: order[plain(item[0]["name"])])
    result = list(left)
    for n, item in zip(places, ranked, strict=True):
        result[n] = item
    return result


def _counted_and_dropped(
    left: Sequence[tuple[Mapping[str, Any], Parameter]],
    arguments: Sequence[Argument],
    matched: dict[str, Parameter],
) -> list[tuple[Mapping[str, Any], Parameter]]:
    """Numbers of something by whatever word for a number, and dropout by whatever name; what is left after that."""
    still = []
    for parameter, place in left:
        name, what = parameter["name"], counted(parameter["name"])
        alike = [
            argument.name
            for argument in arguments
            if argument.kind == "size"
            and what
            and argument.name not in matched
            and what in {*map(counted, argument.names), *(plain(n).removesuffix("s") for n in argument.names)}
        ]
        dropped = "drop" in plain(name) and any(argument.name == "dropout" for argument in arguments)
        if "spelled" in parameter and argument_for(name, arguments, {}, plain) in matched:
            still.append((parameter, place))
        elif alike and place.position is None:
            matched[alike[0]] = place
        elif dropped and not place.has_default and place.position is None:
            known = matched.get("dropout")
            matched["dropout"] = replace(known, also=(*known.also, place.name)) if known else place
        else:
            still.append((parameter, place))
    return still


def argument_for(
    name: str, arguments: Sequence[Argument], matched: Mapping[str, Parameter], step: Callable[[str], str]
) -> str | None:
    for argument in arguments:
        if argument.name == name and name not in matched:
            return name
    for argument in arguments:
        if argument.name not in matched and step(name) in frozenset(map(step, argument.names)):
            return argument.name
    return None

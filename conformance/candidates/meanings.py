"""Conventions before any probing: what is declared, what the author writes, what a name says, and the default."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...spec import Convention, Role
from .names import plain, rank_among
from .parameters import Parameter
from .said import polarity
from .target import Declarations


def meaning_of(
    convention: Convention,
    role: Role,
    entry: Mapping[str, Any],
    arguments: Mapping[str, Parameter],
    declared: Declarations,
) -> tuple[str, str]:
    """The value of a convention before any probing, and where it comes from."""
    for subject in (entry["name"], role.id):
        value = declared.conventions.get(subject, {}).get(convention.name)
        if value is not None:
            return value, "declared"
    said = _said(convention, role, entry, arguments)
    if said and not (_additive_by_name(convention, entry) and "True" not in str(entry.get("doc", ""))):
        return said, "by its author's words"
    named = named_value(convention, role, entry, arguments)
    return named or convention.default, "by name" if named or convention.kind == "named" else "default"


def named_value(
    convention: Convention, role: Role, entry: Mapping[str, Any], arguments: Mapping[str, Parameter]
) -> str:
    """The value that follows from the name of the object or of a mask, or nothing."""
    names = [
        entry["name"].rsplit(".", 1)[-1],
        *(p.name for a, p in arguments.items() if _kind(role, a) == "mask"),
    ]
    for value, known in convention.by_name.items():  # in the order of the spec: what is special comes first
        loosely = tuple(k for k in known if not k.startswith("="))
        if any(f"={name}" in known or rank_among(loosely, name) for name in names):
            return value
    roles_own = {plain(name) for argument in role.arguments for name in (argument.name, *argument.names)}
    for name in names[1:]:  # a mask of a name that nobody foresaw
        for value, stems in STEMS.items():
            if plain(name) not in roles_own and value in convention.values and stems.search(name):
                return value
    return ""


STEMS = {
    "block": re.compile(r"block|forbid|future|ahead|hide|zukunft|interdi|masked|verd", re.IGNORECASE),
    "allow": re.compile(r"allow|visib|keep|sichtbar|permi", re.IGNORECASE),
}


def _additive_by_name(convention: Convention, entry: Mapping[str, Any]) -> bool:
    """Whether a mask is called additive, or a bias: then 0 and -inf are what its words are of, not True."""
    names = convention.by_name.get("additive", ())
    return bool(names) and bool(rank_among(names, entry["name"].rsplit(".", 1)[-1]))


def masks_of(convention: Convention, role: Role, arguments: Mapping[str, Parameter]) -> list[str] | None:
    """The masks that a polarity speaks of; None for another convention, and where there is none of them."""
    if not {"allow", "block"} <= convention.values.keys():
        return None
    masks = [name for name in arguments if _kind(role, name) == "mask"]
    kind = convention.name.removesuffix("polarity")  # memory_, source_, target_, or any other
    own = [n for n in masks if n.startswith({"target_": "tgt", "source_": ("memory", "src")}.get(kind, kind))]
    if not kind:
        rest = [n for n in masks if not n.startswith(("memory", "tgt", "src"))]
        own = [n for n in rest if not n.endswith("key_padding_mask")] or rest
    takes_masks = any(argument.kind == "mask" for argument in role.arguments)
    return None if takes_masks and not own else own


def _said(
    convention: Convention, role: Role, entry: Mapping[str, Any], arguments: Mapping[str, Parameter]
) -> str:
    """The meaning of True in a mask, where the author writes it."""
    own = masks_of(convention, role, arguments)
    if own is None:
        return ""
    masks = {name: place.name for name, place in arguments.items() if _kind(role, name) == "mask"}
    name = masks[own[0]] if own else ""
    others = [parameter for parameter in masks.values() if parameter != name]
    words = str(entry.get("doc", ""))
    return polarity(words, name, others) or polarity(str(entry.get("file_doc", "")), name, others)


def _kind(role: Role, argument: str) -> str:
    return next((a.kind for a in role.arguments if a.name == argument), "")

"""The values a spec is made of: roles, domains, properties and claims.  All frozen, all plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from .formula import Formula

Level = Literal["MUST", "SHOULD", "MAY"]

ConventionKind = Literal["probed", "named", "declared"]


@dataclass(frozen=True)
class Argument:
    """One argument of a role's canonical signature.

    Attributes:
        name: the canonical name, as the checker calls it.
        names: spellings by which a candidate's parameter is recognised (case and ``_`` do not matter).
        kind: what is passed: a ``size`` or ``scalar`` (a number), an ``array``, a ``mask``, ``lengths``,
            ``ids``, a ``flag``, ``state`` (such as a cache), or ``dtype``,
            ``device`` (left at the default where there is one).
        shape: symbolic shape of an array.
        required: a candidate without this parameter does not fill the role (for alternatives, see ``unless``).
        unless: another argument whose presence makes this one dispensable.
        value: formula for what to pass where nothing else decides, over the names of the case.
        only_if_required: pass it only to a candidate that has no default for it.
    """

    name: str
    names: tuple[str, ...]
    kind: str
    shape: str = ""
    required: bool = True
    unless: str = ""
    value: Formula | None = None
    only_if_required: bool = False


@dataclass(frozen=True)
class Result:
    """One part of what a role returns: its canonical name and symbolic shape."""

    name: str
    shape: str


@dataclass(frozen=True)
class Convention:
    """A choice that correct implementations make differently.

    ``probed`` ones are found by trying, ``named`` ones follow from the name that was recognised and change
    only by declaration, ``declared`` ones keep their default until declared.
    """

    name: str
    kind: ConventionKind
    values: Mapping[str, str]  # value -> what it means, in words
    default: str
    by_name: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # value -> recognised names


@dataclass(frozen=True)
class Role:
    """Something that a candidate can provide."""

    id: str
    title: str
    names: tuple[str, ...]
    arguments: tuple[Argument, ...]
    constructor: tuple[Argument, ...]
    methods: tuple[str, ...]
    results: tuple[Result, ...]
    conventions: tuple[Convention, ...]
    beside: bool = False  # an object may fill it beside another role
    shown_by: tuple[
        str, ...
    ] = ()  # arguments or methods (by their plain names), one of which an object must have

    def convention(self, name: str) -> Convention | None:
        return next((c for c in self.conventions if c.name == name), None)


@dataclass(frozen=True)
class PropertySpec:
    """What a kind of check is called, how it works in words, and which arguments a claim gives it."""

    name: str
    how: str
    arguments: Mapping[str, Mapping[str, Any]]
    roles: tuple[str, ...] = ()  # the roles that it fits; any, where none is named


Choice = tuple[Any, ...]


@dataclass(frozen=True)
class Domain:
    """The cases of a claim: each dimension with the values it is drawn from, smallest first."""

    name: str
    dimensions: Mapping[str, Choice]


@dataclass(frozen=True)
class Tolerance:
    """An absolute error that departs from the rule of the engine, with the reason."""

    absolute: float
    reason: str


@dataclass(frozen=True)
class Claim:
    """One checkable statement."""

    id: str
    level: Level
    title: str
    statement: str
    source: tuple[str, ...]
    role: str
    partners: tuple[str, ...]
    domain: Domain
    property_name: str
    arguments: Mapping[str, Any]
    requires: tuple[Formula, ...]
    evidence: tuple[Formula, ...]
    needs: tuple[str, ...]
    conventions: Mapping[str, tuple[str, ...]]
    rests_on: tuple[str, ...]
    tolerance: Tolerance | None
    hint: str
    file: str

    @property
    def role_label(self) -> str:
        return " + ".join((self.role, *self.partners))


@dataclass(frozen=True)
class Spec:
    """Everything that was loaded: roles and claims by id, in the order of the files."""

    roles: Mapping[str, Role]
    claims: Mapping[str, Claim]
    properties: Mapping[str, PropertySpec]
    files: tuple[str, ...]

    def resting_on(self, identity: str) -> tuple[Claim, ...]:
        """The claims that rest on one, directly or through others."""
        found: dict[str, Claim] = {}
        for claim in self.claims.values():
            if claim.id not in found and ({identity, *found} & set(claim.rests_on)):
                found[claim.id] = claim
        return tuple(found.values())

    def select(self, pattern: str | None) -> tuple[Claim, ...]:
        """Claims whose id matches the shell pattern (comma-separated alternatives), or all of them."""
        from fnmatch import fnmatchcase

        if not pattern:
            return tuple(self.claims.values())
        wanted = [part.strip() for part in pattern.split(",") if part.strip()]
        return tuple(
            claim
            for claim in self.claims.values()
            if any(fnmatchcase(claim.id, part) or fnmatchcase(claim.role, part) for part in wanted)
        )


def frozen_map(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(values))

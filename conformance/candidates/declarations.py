"""Checks what a user declared against the spec and the candidate, before anything is bound by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from ...spec import Role, Spec
from .errors import ConventionError
from .names import name_rank
from .target import Declarations


def check_declarations(spec: Spec, entries: Sequence[Mapping[str, Any]], declared: Declarations) -> None:
    """Raises ConventionError, with what is known, for a role, object, argument or value that is not."""
    names = [e["name"] for e in entries]
    source = declared.source

    def unknown(what: str, found: str, known: Iterable[str]) -> ConventionError:
        known = list(dict.fromkeys(known))
        near = get_close_matches(found, known, 1)
        guess = f"; did you mean {near[0]}?" if near else ""
        return ConventionError(
            f"{source}: {what} {found!r} is not known{guess} (known: {', '.join(known) or 'none'})"
        )

    for role, objects in declared.roles.items():
        if role not in spec.roles:
            raise unknown("roles: role", role, spec.roles)
        for name in objects:
            if name not in names:
                raise unknown(f"roles.{role}: object", name, names)
    for group, table in (("conventions", declared.conventions), ("arguments", declared.arguments)):
        for subject, values in table.items():
            if subject in spec.roles:
                roles = [spec.roles[subject]]
            elif subject in names:
                roles = [
                    r
                    for r in spec.roles.values()
                    if name_rank(r, subject) or subject in declared.roles.get(r.id, ())
                ]
            else:
                raise unknown(f"{group}: role or object", subject, [*spec.roles, *names])
            for name, value in values.items():
                if group == "arguments":
                    known = [a.name for r in roles for a in (*r.arguments, *r.constructor)]
                    if name not in known:
                        raise unknown(f"arguments.{subject}: argument", name, known)
                    parameters = [
                        p
                        for e in entries
                        for p in _parameter_names(e)
                        if _concerns(e, subject, roles, declared)
                    ]
                    if value not in parameters:
                        raise unknown(f"arguments.{subject}.{name}: parameter", value, parameters)
                    continue
                conventions = [c for r in roles if (c := r.convention(name)) is not None]
                if not conventions:
                    raise unknown(
                        f"conventions.{subject}: convention",
                        name,
                        [c.name for r in roles for c in r.conventions],
                    )
                if all(value not in c.values for c in conventions):
                    raise unknown(
                        f"conventions.{subject}.{name}: value",
                        value,
                        [v for c in conventions for v in c.values],
                    )


def _parameter_names(entry: Mapping[str, Any]) -> list[str]:
    lists = [entry["params"], entry.get("init"), *entry["methods"].values()]
    return [p["name"] for parameters in lists for p in parameters or ()]


def _concerns(entry: Mapping[str, Any], subject: str, roles: Sequence[Role], declared: Declarations) -> bool:
    if entry["name"] == subject:
        return True
    return any(
        subject == r.id and (name_rank(r, entry["name"]) or entry["name"] in declared.roles.get(r.id, ()))
        for r in roles
    )

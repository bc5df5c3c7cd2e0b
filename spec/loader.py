"""Reads spec files: TOML, checked against ``schema.json``, cross-checked, turned into frozen values.

Every error is a :class:`SpecError` that names the file, the claim or role, the field, what was found
and what was expected.  The property names and their arguments are data too (``properties/``), so
that a spec can be checked, listed and explained without importing torch or NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from .documents import HERE, SpecError, explain, file_name, read_toml, schema_error
from .formula import Formula, FormulaError, parse, parse_shape
from .model import (
    Argument,
    Claim,
    Convention,
    Domain,
    PropertySpec,
    Result,
    Role,
    Spec,
    Tolerance,
    frozen_map,
)

PROPERTIES = HERE / "properties"  # a file for each module of conformance/properties
MAX_RANGE = 100_000
NEEDS = (
    "batches",
    "gradient",
    "mask",
    "no mask",
    "weights",
    "torch",
    "constructor",
    "flag is_causal",
    "two sequences",
    "causal",
    "returned weights",
    "pytorch masks",
    "memory padding",
    "target padding",
    "cache",
    "reset",
    "generate",
)


def built_in_files() -> tuple[Path, ...]:
    """The spec files that come with triu, in a stable order."""
    return tuple(sorted(HERE.glob("*.toml")))


def load_spec(extra: Iterable[str | Path] = (), *, built_in: bool = True) -> Spec:
    """Load the spec that comes with triu and any further files.

    Raises:
        SpecError: a file is missing, is not TOML, or breaks the schema or a cross-reference.
    """
    files = [*(built_in_files() if built_in else ()), *map(Path, extra)]
    paths = [*sorted(PROPERTIES.glob("*.toml")), *files]
    documents = [(path, _read(path)) for path in paths]
    properties: dict[str, PropertySpec] = {}
    roles: dict[str, Role] = {}
    domains: dict[str, Domain] = {}
    origin: dict[str, Path] = {}
    for path, document in documents:
        if "property" in document and path.parent != PROPERTIES:
            names = ", ".join(document["property"])
            raise SpecError(
                f"{path}: property {names}: a kind of check is code of triu's own; a spec file cannot define one"
            )
        _add("property", _property, properties, path, document, origin)
        _add("role", _role, roles, path, document, origin)
        _add("domain", _domain, domains, path, document, origin)
    claims: dict[str, Claim] = {}
    for path, document in documents:
        for table in document.get("claim", []):
            claim = _claim(path, table, roles, domains, properties)
            if claim.id in claims:
                raise SpecError(
                    f"{file_name(path)}: claim {claim.id}: field id: used twice, first in {claims[claim.id].file}; "
                    "ids are unique"
                )
            claims[claim.id] = claim
    _check_dependencies(claims)
    return Spec(frozen_map(roles), frozen_map(claims), frozen_map(properties), tuple(map(file_name, files)))


def _add(
    kind: str,
    build: Callable[[Path, str, Mapping[str, Any]], Any],
    into: dict[str, Any],
    path: Path,
    document: Mapping[str, Any],
    origin: dict[str, Path],
) -> None:
    """What a file defines of one kind.  Raises SpecError for a name that is defined already."""
    for name, table in document.get(kind, {}).items():
        if name in into:
            raise SpecError(
                f"{file_name(path)}: {kind} {name}: defined twice, in {file_name(origin[kind + name])} too"
            )
        origin[kind + name] = path
        into[name] = build(path, name, table)


def _read(path: Path) -> dict[str, Any]:
    document = read_toml(path, "--spec takes a TOML file of claims")
    if path.is_relative_to(HERE):  # tests hold these to the schema; that takes longer than all the rest
        return document
    error = schema_error(document, HERE / "schema.json")
    if error is not None:
        raise SpecError(f"{file_name(path)}: {_explain(error, document)}")
    return document


def _explain(error: Any, document: Mapping[str, Any]) -> str:
    """A schema error as a sentence: which claim, which field, found, expected."""
    path = list(error.absolute_path)
    if path[:1] == ["claim"] and len(path) > 1:
        claim = document["claim"][path[1]]
        identity = claim.get("id") if isinstance(claim, dict) else None
        return f"claim {identity or '#' + str(path[1] + 1)}: {explain(error, 2)}"
    if len(path) > 1 and path[0] in ("role", "domain", "property"):
        return f"{path[0]} {path[1]}: {explain(error, 2)}"
    return explain(error, 0)


def _formula(where: str, text: str, variables: Iterable[str] | None = None) -> Formula:
    try:
        return parse(text, variables)
    except FormulaError as error:
        raise SpecError(f"{where}: {error}") from None


def _argument(where: str, table: Mapping[str, Any]) -> Argument:
    value = table.get("value")
    return Argument(
        name=table["name"],
        names=tuple(table.get("names", [table["name"]])),
        kind=table["kind"],
        shape=table.get("shape", ""),
        required=table.get("required", True),
        unless=table.get("unless", ""),
        value=None if value is None else _formula(f"{where}: argument {table['name']}: field value", value),
        only_if_required=table.get("only_if_required", False),
    )


def _role(path: Path, name: str, table: Mapping[str, Any]) -> Role:
    where = f"{file_name(path)}: role {name}"
    conventions = []
    for entry in table.get("convention", []):
        values, by_name = entry["values"], entry.get("by_name", {})
        for value in (entry["default"], *by_name):
            if value not in values:
                raise SpecError(
                    f"{where}: convention {entry['name']}: found {value!r}, expected one of {', '.join(values)}"
                )
        conventions.append(
            Convention(
                entry["name"],
                entry["kind"],
                frozen_map(values),
                entry["default"],
                frozen_map({value: tuple(names) for value, names in by_name.items()}),
            )
        )
    names = [entry["name"] for entry in table["argument"]]
    for entry in table["argument"]:
        other = entry.get("unless", names[0])
        if other not in names:
            raise SpecError(
                f"{where}: argument {entry['name']}: field unless: found {other!r}, expected one of {', '.join(names)}"
            )
        try:
            parse_shape(entry.get("shape", "[]"))
        except FormulaError as error:
            raise SpecError(f"{where}: argument {entry['name']}: field shape: {error}") from None
    for result in table["result"]:
        try:
            parse_shape(result["shape"])
        except FormulaError as error:
            raise SpecError(f"{where}: result {result['name']}: field shape: {error}") from None
    return Role(
        id=name,
        title=table["title"],
        names=tuple(table["names"]),
        arguments=tuple(_argument(where, entry) for entry in table["argument"]),
        constructor=tuple(_argument(where, entry) for entry in table.get("constructor", [])),
        methods=tuple(table.get("methods", ())),
        results=tuple(Result(**entry) for entry in table["result"]),
        conventions=tuple(conventions),
        beside=table.get("beside", False),
        shown_by=tuple(table.get("shown_by", ())),
    )


def _property(path: Path, name: str, table: Mapping[str, Any]) -> PropertySpec:
    return PropertySpec(
        name, table["how"], frozen_map(table.get("arguments", {})), tuple(table.get("roles", ()))
    )


def _choices(where: str, name: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, list):
        return tuple(value)
    low, high = (int(part) for part in value.split(".."))
    if high - low > MAX_RANGE:
        raise SpecError(
            f"{where}: dimension {name}: found {value}, expected a range of at most {MAX_RANGE} values"
        )
    if low > high:
        raise SpecError(f"{where}: dimension {name}: found the empty range {value}, expected low..high")
    return tuple(range(low, high + 1))


def _domain(path: Path, name: str, table: Mapping[str, Any]) -> Domain:
    where = f"{file_name(path)}: domain {name}"
    return Domain(name, frozen_map({key: _choices(where, key, value) for key, value in table.items()}))


def _claim(
    path: Path,
    table: Mapping[str, Any],
    roles: Mapping[str, Role],
    domains: Mapping[str, Domain],
    properties: Mapping[str, PropertySpec],
) -> Claim:
    where = f"{file_name(path)}: claim {table['id']}"

    def known(field: str, value: str, names: Iterable[str]) -> None:
        if value not in names:
            near = get_close_matches(value, list(names), 1)
            guess = f" (did you mean {near[0]}?)" if near else ""
            raise SpecError(
                f"{where}: field {field}: found {value!r}{guess}, expected one of {', '.join(names)}"
            )

    for role in (table["role"], *table.get("partners", ())):
        known("role" if role == table["role"] else "partners", role, roles)
    known("property", table["property"], properties)
    for need in table.get("needs", ()):
        own = roles[table["role"]]
        known(
            "needs",
            need,
            (
                *NEEDS,
                *(f"argument {a.name}" for a in own.arguments),
                *(f"parameter {a.name}" for a in own.constructor),
            ),
        )
    domain = _domain_of(where, table["domain"], domains, known)
    conventions = {}
    for name, values in table.get("conventions", {}).items():
        convention = roles[table["role"]].convention(name)
        if convention is None:
            known("conventions", name, [c.name for c in roles[table["role"]].conventions])
            raise AssertionError
        conventions[name] = (values,) if isinstance(values, str) else tuple(values)
        for value in conventions[name]:
            known(f"conventions.{name}", value, convention.values)
    variables = [*domain.dimensions, "seed"]
    tolerance = table.get("tolerance")
    prop = properties[table["property"]]
    arguments = _arguments(where, table.get("with", {}), prop, domain, roles[table["role"]])
    if prop.roles and table["role"] not in prop.roles:
        fits = ", ".join(prop.roles)
        raise SpecError(
            f"{where}: field property: {prop.name} does not fit role {table['role']}; it fits {fits}"
        )
    return Claim(
        id=table["id"],
        level=table["level"],
        title=table["title"],
        statement=table["statement"],
        source=tuple(table["source"]),
        role=table["role"],
        partners=tuple(table.get("partners", ())),
        domain=domain,
        property_name=table["property"],
        arguments=arguments,
        requires=tuple(
            _formula(f"{where}: field requires", text, variables) for text in table.get("requires", ())
        ),
        evidence=tuple(
            _formula(f"{where}: field evidence", text, variables) for text in table.get("evidence", ())
        ),
        needs=tuple(table.get("needs", ())),
        conventions=frozen_map(conventions),
        rests_on=tuple(table.get("rests_on", ())),
        tolerance=None if tolerance is None else Tolerance(tolerance["absolute"], tolerance["reason"]),
        hint=table["hint"],
        file=file_name(path),
    )


def _domain_of(where: str, value: Any, domains: Mapping[str, Domain], known: Any) -> Domain:
    if isinstance(value, str):
        known("domain", value, domains)
        return domains[value]
    dimensions: dict[str, Any] = {}
    base = value.get("of")
    if base:
        known("domain.of", base, domains)
        dimensions.update(domains[base].dimensions)
    for name, choices in value.items():
        if name != "of":
            dimensions[name] = _choices(f"{where}: field domain", name, choices)
    return Domain(base or "", frozen_map(dimensions))


def _arguments(
    where: str, given: Mapping[str, Any], prop: PropertySpec, domain: Domain, role: Role
) -> Mapping[str, Any]:
    """Check what a claim gives to its property; formulas and shapes are parsed here, once."""
    parsed: dict[str, Any] = {}
    for name, value in given.items():
        declared = prop.arguments.get(name)
        if declared is None:
            near = get_close_matches(name, list(prop.arguments), 1)
            guess = f"; did you mean {near[0]}?" if near else ""
            raise SpecError(
                f"{where}: field with: property {prop.name} has no argument {name!r}{guess} "
                f"(it has: {', '.join(prop.arguments) or 'none'})"
            )
        parsed[name] = _value(f"{where}: field with.{name}", value, declared, domain)
    missing = [n for n, a in prop.arguments.items() if n not in given and not a.get("optional", False)]
    if missing:
        raise SpecError(f"{where}: field with: property {prop.name} needs {', '.join(missing)}")
    indices = parsed.get("indices")
    if indices is not None:
        for name, value in parsed.items():
            unknown = (
                sorted(value.names - {*domain.dimensions, *indices}) if isinstance(value, Formula) else ()
            )
            if unknown:
                raise SpecError(
                    f"{where}: field with.{name}: unknown name {', '.join(unknown)}; "
                    f"the indices are {', '.join(indices)}, the dimensions {', '.join(domain.dimensions)}"
                )
    names = [r.name for r in role.results]
    for result in parsed.get("results", ()):
        if result not in names:
            raise SpecError(
                f"{where}: field with.results: found {result!r}, expected results of role {role.id}: {', '.join(names)}"
            )
    result = parsed.get("result")
    if result is not None and result not in names:
        raise SpecError(
            f"{where}: field with.result: found {result!r}, expected a result of role {role.id}: {', '.join(names)}"
        )
    return frozen_map(parsed)


def _value(where: str, value: Any, declared: Mapping[str, Any], domain: Domain) -> Any:
    expected = declared["type"]
    variables = [*domain.dimensions, *declared.get("variables", ())]
    try:
        if expected == "formula" and isinstance(value, str | int | float) and not isinstance(value, bool):
            return parse(str(value), variables)
        if expected == "shape" and isinstance(value, str):
            return parse_shape(value, variables)
    except FormulaError as error:
        raise SpecError(f"{where}: {error}") from None
    fits = {
        "name": lambda: isinstance(value, str),
        "names": lambda: isinstance(value, list) and all(isinstance(v, str) for v in value),
        "number": lambda: isinstance(value, int | float) and not isinstance(value, bool),
        "numbers": lambda: isinstance(value, list) and _shape_of(value) is not None,
        "dimension": lambda: value in domain.dimensions,
        "flag": lambda: isinstance(value, bool),
        "table": lambda: isinstance(value, dict),
    }.get(expected, lambda: False)()
    if not fits:
        wanted = {
            "numbers": "numbers in rows of equal length",
            "dimension": f"a dimension of the domain: {', '.join(domain.dimensions)}",
        }.get(expected, f"a {expected}")
        raise SpecError(f"{where}: found {value!r}, expected {wanted}")
    choices = declared.get("choices")
    if choices:
        for item in value if isinstance(value, list) else [value]:
            if item not in choices:
                raise SpecError(f"{where}: found {item!r}, expected one of {', '.join(choices)}")
    return tuple(value) if isinstance(value, list) else value


def _shape_of(value: Any) -> tuple[int, ...] | None:
    """The shape of nested lists of numbers, or None where rows differ or something else is in them."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return ()
    if not isinstance(value, list) or not value:
        return None
    shapes = {_shape_of(item) for item in value}
    shape = shapes.pop()
    return None if shapes or shape is None else (len(value), *shape)


def _check_dependencies(claims: Mapping[str, Claim]) -> None:
    """Every claim that another rests on exists, concerns the same objects, and there is no circle."""
    state: dict[str, int] = {}

    def visit(identity: str, trail: tuple[str, ...]) -> None:
        if state.get(identity) == 2:
            return
        if state.get(identity) == 1:
            raise SpecError(
                f"{claims[identity].file}: claim {identity}: field rests_on: circle {' → '.join((*trail, identity))}"
            )
        state[identity] = 1
        claim = claims[identity]
        for other in claim.rests_on:
            if other not in claims:
                near = get_close_matches(other, list(claims), 1)
                guess = f"; did you mean {near[0]}?" if near else ""
                raise SpecError(f"{claim.file}: claim {identity}: field rests_on: no claim {other!r}{guess}")
            if claims[other].role not in (claim.role, *claim.partners):
                raise SpecError(
                    f"{claim.file}: claim {identity}: field rests_on: {other} concerns role {claims[other].role}, "
                    f"expected {claim.role_label}"
                )
            visit(other, (*trail, identity))
        state[identity] = 2

    for identity in claims:
        visit(identity, ())

"""The built-in spec: every file fits the schema, every claim hangs together, every property has its code."""

from __future__ import annotations

import inspect
import json
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import triu.spec
from jsonschema import Draft202012Validator
from triu.conformance.candidates.opening import SUBJECTS
from triu.conformance.properties import PROPERTIES
from triu.spec import built_in_files, load_spec

HOME = Path(triu.spec.__file__).parent
SCHEMA = json.loads((HOME / "schema.json").read_text("utf-8"))
PROPERTY_FILES = sorted((HOME / "properties").glob("*.toml"))
FILES = [*PROPERTY_FILES, *built_in_files()]
SPEC = load_spec()
DECLARED = {
    name: table
    for path in PROPERTY_FILES
    for name, table in tomllib.loads(path.read_text("utf-8"))["property"].items()
}


def document(path):
    return tomllib.loads(path.read_text("utf-8"))


def nodes(schema, place="$"):
    """Every object schema within a schema."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield place, schema
        for key, value in schema.items():
            yield from nodes(value, f"{place}.{key}")


# the schema


def test_the_schema_is_a_schema():
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("place", [place for place, _ in nodes(SCHEMA)])
def test_no_table_of_the_schema_takes_fields_that_nobody_described(place):
    described = dict(nodes(SCHEMA))[place]
    assert described.get("additionalProperties", True) is not True


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_spec_file_fits_the_schema(path):
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(document(path))] == []


def test_every_toml_file_of_the_spec_is_loaded():
    others = {"profiles", "lessons"}  # read by what reads them
    assert {path for path in HOME.rglob("*.toml") if path.parent.name not in others} == set(FILES)


# the claims


def test_claim_ids_are_unique():
    ids = Counter(claim["id"] for path in FILES for claim in document(path).get("claim", []))
    assert [name for name, count in ids.items() if count > 1] == []


def test_every_claim_that_is_written_is_loaded():
    assert set(SPEC.claims) == {claim["id"] for path in FILES for claim in document(path).get("claim", [])}


def test_a_claim_knows_its_file():
    written = {
        claim["id"]: f"spec/{path.name}" for path in FILES for claim in document(path).get("claim", [])
    }
    assert {claim.id: claim.file for claim in SPEC.claims.values()} == written


def test_what_a_claim_rests_on_is_no_weaker_than_the_claim():
    """A MUST that rests on advice would be blocked by advice."""
    weaker = {
        claim.id: other
        for claim in SPEC.claims.values()
        for other in claim.rests_on
        if claim.level == "MUST" and SPEC.claims[other].level != "MUST"
    }
    assert weaker == {}


def test_every_property_that_is_declared_is_used():
    used = {claim.property_name for claim in SPEC.claims.values()}
    assert sorted(set(SPEC.properties) - used) == []


def test_the_names_of_a_role_are_given_once():
    twice = {
        role.id: [name for name, count in Counter(role.names).items() if count > 1]
        for role in SPEC.roles.values()
    }
    assert {role: names for role, names in twice.items() if names} == {}


def test_an_argument_is_dispensable_only_for_another_one_of_its_role():
    astray = [
        (role.id, argument.name)
        for role in SPEC.roles.values()
        for argument in role.arguments
        if argument.unless and argument.unless not in {other.name for other in role.arguments}
    ]
    assert astray == []


def test_every_special_subject_is_for_a_role_that_exists():
    assert set(SUBJECTS) <= set(SPEC.roles)


# the properties


def test_the_declared_properties_are_those_that_have_code():
    assert set(DECLARED) == set(PROPERTIES)


@pytest.mark.parametrize("name", sorted(set(DECLARED) & set(PROPERTIES)))
def test_a_property_takes_the_arguments_that_are_declared_for_it(name):
    _trial, *parameters = inspect.signature(PROPERTIES[name]).parameters.values()
    declared = DECLARED[name].get("arguments", {})
    assert {p.name: p.default is not p.empty for p in parameters} == {
        argument: described.get("optional", False) for argument, described in declared.items()
    }

"""The loader: a spec file with a mistake is refused with file, claim, field, what was found and expected."""

from __future__ import annotations

import pytest
from triu.conformance import check
from triu.spec import SpecError, built_in_files, load_spec

CLAIM = {
    "id": '"course.first"',
    "level": '"MUST"',
    "title": '"A title"',
    "statement": '"A statement."',
    "source": '["lesson 1"]',
    "role": '"causal_mask"',
    "domain": '{ T = "1..8" }',
    "property": '"readable"',
    "hint": '"A hint."',
}

OWN_ROLE = """
[role.countdown]
title = "Countdown"
names = ["countdown", "count_down"]
result = [{ name = "numbers", shape = "[n]" }]

[[role.countdown.argument]]
name = "n"
kind = "size"
names = ["n", "start"]

[[role.countdown.convention]]
name = "end"
kind = "declared"
values = { zero = "it ends with 0", one = "it ends with 1" }
default = "zero"

[domain.small]
n = "1..6"
"""

OWN_CLAIMS = """
[[claim]]
id = "countdown.shape"
level = "MUST"
title = "n numbers"
statement = "There are n numbers."
source = ["lesson 1"]
role = "countdown"
domain = "small"
property = "shape"
with = { result = "numbers", shape = "[n]" }
hint = "Use np.arange."

[[claim]]
id = "countdown.entries"
level = "SHOULD"
title = "Down to 0"
statement = "Entry pos is n - 1 - pos."
source = ["lesson 1"]
role = "countdown"
domain = { of = "small", n = [2, 5] }
property = "elementwise"
with = { result = "numbers", indices = ["pos"], formula = "n - 1 - pos" }
evidence = ["n >= 5"]
rests_on = ["countdown.shape"]
hint = "The last number is 0."
"""


def claim(**fields):
    """A claim as TOML; a field given as None is left out."""
    told = {**CLAIM, **{name.rstrip("_"): value for name, value in fields.items()}}
    return "[[claim]]\n" + "".join(f"{name} = {value}\n" for name, value in told.items() if value is not None)


def write(folder, text, name="course.toml"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(*paths):
    """What files are refused with, beside the built-in claims on causal masks alone, which is quicker."""
    beside = [path for path in built_in_files() if path.stem == "causal_mask"]
    with pytest.raises(SpecError) as caught:
        load_spec([*beside, *paths], built_in=False)
    return str(caught.value)


def refused(folder, text):
    """What a file of that text is refused with; the message begins with its path."""
    path = write(folder, text)
    message = refusal(path)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


# what loads


def test_the_claim_that_these_tests_break_is_right(tmp_path):
    assert "course.first" in load_spec([write(tmp_path, claim())]).claims


def test_claims_of_a_course_come_after_those_built_in(tmp_path):
    assert list(load_spec([write(tmp_path, claim())]).claims) == [*load_spec().claims, "course.first"]


def test_a_course_file_with_a_role_a_domain_and_claims_of_its_own_loads(tmp_path):
    spec = load_spec([write(tmp_path, OWN_ROLE + OWN_CLAIMS)])
    assert spec.roles["countdown"].arguments[0].names == ("n", "start")
    assert spec.claims["countdown.shape"].domain.dimensions["n"] == (1, 2, 3, 4, 5, 6)
    assert spec.claims["countdown.entries"].domain.dimensions["n"] == (2, 5)


def test_a_candidate_can_be_checked_by_a_course_file_alone(tmp_path):
    import numpy as np

    def countdown(start):
        return np.arange(start)[::-1]

    spec = load_spec([write(tmp_path, OWN_ROLE + OWN_CLAIMS)])
    report = check(countdown, spec=spec, claims="countdown.*")
    assert {v.claim: v.verdict for v in report.verdicts} == {
        "countdown.shape": "passed",
        "countdown.entries": "passed",
    }


def test_a_claim_of_a_course_file_fails_a_candidate_that_breaks_it(tmp_path):
    import numpy as np

    def countdown(start):
        return np.arange(start)

    spec = load_spec([write(tmp_path, OWN_ROLE + OWN_CLAIMS)])
    report = check(countdown, spec=spec, claims="countdown.*")
    assert {v.claim: v.verdict for v in report.verdicts}["countdown.entries"] == "failed"


def test_a_course_file_may_rest_on_a_built_in_claim(tmp_path):
    spec = load_spec([write(tmp_path, claim(rests_on='["causal-mask.pattern"]'))])
    assert spec.claims["course.first"].rests_on == ("causal-mask.pattern",)


def test_one_course_file_may_use_the_role_of_another_one_after_it(tmp_path):
    first, second = write(tmp_path, OWN_CLAIMS, "claims.toml"), write(tmp_path, OWN_ROLE, "role.toml")
    assert "countdown.shape" in load_spec([first, second]).claims


def test_a_file_without_a_built_in_spec_stands_for_itself(tmp_path):
    spec = load_spec([write(tmp_path, OWN_ROLE + OWN_CLAIMS)], built_in=False)
    assert list(spec.claims) == ["countdown.shape", "countdown.entries"]


def test_an_empty_file_adds_nothing(tmp_path):
    assert load_spec([write(tmp_path, "")]).claims == load_spec().claims


def test_a_claim_is_frozen():
    first = next(iter(load_spec().claims.values()))
    with pytest.raises(AttributeError):
        first.level = "MAY"


# files that are none


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert "no such file" in refusal(tmp_path / "nowhere.toml")


def test_a_folder_is_no_spec_file(tmp_path):
    assert "cannot be read" in refusal(tmp_path)


def test_broken_toml_is_refused_with_its_place(tmp_path):
    message = refused(tmp_path, '[[claim]]\nid = "a.b\n')
    assert "is not TOML" in message
    assert "line 2" in message


def test_a_file_that_is_not_utf8_is_refused_with_the_byte(tmp_path):
    assert "UTF-8" in refused(tmp_path, b'title = "\xff"')


# fields


@pytest.mark.parametrize("field", sorted(CLAIM))
def test_a_missing_field_is_named(tmp_path, field):
    message = refused(tmp_path, claim(**{field: None}))
    assert message.startswith("claim #1: " if field == "id" else "claim course.first: ")
    assert f"missing field {field}" in message


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("evidnce", "evidence"),
        ("rest_on", "rests_on"),
        ("leval", "level"),
        ("With", "with"),
        ("need", "needs"),
    ],
)
def test_a_typo_in_the_name_of_a_field_is_named_and_the_field_that_was_meant(tmp_path, typo, meant):
    message = refused(tmp_path, claim(**{typo: '["T >= 3"]'}))
    assert message.startswith(f"claim course.first: unknown field {typo}")
    assert f"did you mean {meant}?" in message


def test_a_second_claim_is_told_from_the_first(tmp_path):
    message = refused(tmp_path, claim() + claim(id='"course.second"', level='"must"'))
    assert message.startswith("claim course.second: field level: ")


def test_a_claim_without_an_id_is_told_by_its_number(tmp_path):
    assert refused(tmp_path, claim() + claim(id=None)).startswith("claim #2: ")


@pytest.mark.parametrize(
    ("field", "value", "found", "expected"),
    [
        ("level", '"must"', "must", "MUST, SHOULD, MAY"),
        ("level", "1", "1", "MUST, SHOULD, MAY"),
        ("title", '""', '""', "matches"),
        ("statement", "3", "3", "string"),
        ("source", '"lesson 1"', "lesson 1", "array"),
        ("source", "[]", "[]", "at least one"),
        ("hint", '"  "', '"  "', "matches"),
        ("role", '"causl_mask"', "causl_mask", "did you mean causal_mask?"),
        ("partners", '["causal_masks"]', "causal_masks", "did you mean causal_mask?"),
        ("property", '"redable"', "redable", "did you mean readable?"),
        ("domain", '"big"', "big", "expected"),
        ("domain", "3", "3", "expected"),
        ("domain", "{}", "{}", "expected"),
        ("domain", '{ T = "1-8" }', "1-8", "expected"),
        ("domain", '{ T = "8..1" }', "8..1", "empty range"),
        ("domain", '{ of = "big", T = [1] }', "big", "expected"),
        ("needs", '["wieghts"]', "wieghts", "did you mean weights?"),
        ("needs", '["argument Q"]', "argument Q", "expected"),
        ("conventions", '{ polarty = "block" }', "polarty", "did you mean polarity?"),
        ("conventions", '{ polarity = "blok" }', "blok", "did you mean block?"),
        ("tolerance", "{ absolute = 0, reason = 'x' }", "0", "minimum"),
        ("tolerance", "{ absolute = 1e-6 }", "tolerance", "reason"),
        ("evidence", '["T >"]', "T >", "does not parse"),
        ("evidence", '["t >= 3"]', "unknown name t", "T"),
        ("evidence", '["len(T) > 3"]', "len", "not allowed"),
        ("requires", '["S >= T"]', "unknown name S", "T"),
        ("rests_on", '["causal-mask.patern"]', "causal-mask.patern", "did you mean causal-mask.pattern?"),
    ],
)
def test_a_wrong_value_is_told_with_its_field_and_what_is_expected(tmp_path, field, value, found, expected):
    message = refused(tmp_path, claim(**{field: value}))
    assert message.startswith("claim course.first: ")
    assert f"field {field}" in message
    assert found in message
    assert expected in message


@pytest.mark.parametrize("identity", ['"first"', '"Course.First"', '"course first"', "7"])
def test_an_id_in_another_form_is_refused(tmp_path, identity):
    message = refused(tmp_path, claim(id=identity))
    assert f"field id: found {identity}, expected" in message


def test_a_claim_cannot_rest_on_one_about_another_role(tmp_path):
    message = refused(tmp_path, OWN_ROLE + OWN_CLAIMS + claim(rests_on='["countdown.shape"]'))
    assert message.startswith("claim course.first: field rests_on: ")
    assert "expected causal_mask" in message


@pytest.mark.parametrize(
    ("mine", "others"),
    [('["course.first"]', "[]"), ('["course.second"]', '["course.first"]')],
    ids=["itself", "two"],
)
def test_claims_that_rest_on_each_other_are_refused_with_the_circle(tmp_path, mine, others):
    text = claim(rests_on=mine) + claim(id='"course.second"', rests_on=None if others == "[]" else others)
    message = refused(tmp_path, text)
    assert message.startswith("claim course.first: field rests_on: ")
    assert "course.first →" in message


def test_a_range_too_large_to_draw_from_is_refused(tmp_path):
    message = refused(tmp_path, claim(domain='{ T = "1..1000000000000000000" }'))
    assert "field domain" in message


# ids that are used twice


def test_an_id_that_is_used_twice_in_a_file_is_refused(tmp_path):
    message = refused(tmp_path, claim() + claim())
    assert message.startswith("claim course.first: field id: used twice")


def test_an_id_that_is_used_in_two_files_is_refused_with_both(tmp_path):
    first, second = write(tmp_path, claim(), "one.toml"), write(tmp_path, claim(), "two.toml")
    message = refusal(first, second)
    assert message.startswith(f"{second}: claim course.first: field id: ")
    assert str(first) in message


def test_a_built_in_id_cannot_be_used_again(tmp_path):
    message = refused(tmp_path, claim(id='"causal-mask.pattern"'))
    assert "spec/causal_mask.toml" in message


def test_a_role_cannot_be_defined_twice(tmp_path):
    message = refused(tmp_path, OWN_ROLE.replace("countdown", "causal_mask"))
    assert message.startswith("role causal_mask: defined twice")
    assert "spec/causal_mask.toml" in message


# properties and their arguments


def elementwise(**changes):
    given = {"result": '"allowed"', "indices": '["i", "j"]', "formula": '"j <= i"', **changes}
    told = ", ".join(f"{name} = {value}" for name, value in given.items() if value is not None)
    return claim(property='"elementwise"', with_=f"{{ {told} }}")


def test_the_property_that_these_tests_break_is_right(tmp_path):
    assert load_spec([write(tmp_path, elementwise())]).claims["course.first"].arguments["indices"] == (
        "i",
        "j",
    )


@pytest.mark.parametrize(
    ("changes", "found", "expected"),
    [
        ({"formla": '"j"'}, "formla", "did you mean formula?"),
        ({"formula": None}, "formula", "needs"),
        ({"formula": '"j <= k"'}, "unknown name k", "i"),
        ({"formula": "\"__import__('os')\""}, "__import__", "not allowed"),
        ({"formula": '"i.real"'}, "Attribute", "not allowed"),
        ({"formula": "true"}, "True", "formula"),
        ({"indices": '"i"'}, "'i'", "names"),
        ({"indices": "[1, 2]"}, "[1, 2]", "names"),
        ({"drift": '"yes"'}, "'yes'", "flag"),
        ({"result": '"alowed"'}, "alowed", "allowed"),
        ({"result": "3"}, "3", "name"),
    ],
)
def test_a_wrong_argument_of_a_property_is_told_with_what_is_expected(tmp_path, changes, found, expected):
    message = refused(tmp_path, elementwise(**changes))
    assert message.startswith("claim course.first: field with")
    assert found in message
    assert expected in message


def test_an_argument_for_a_property_that_has_none_is_refused(tmp_path):
    assert "it has: none" in refused(tmp_path, claim(with_='{ result = "allowed" }'))


def test_an_argument_that_is_none_of_the_choices_is_refused(tmp_path):
    message = refused(tmp_path, claim(property='"blocks"', with_='{ argument = "mask" }'))
    assert "field with.argument" in message
    assert "attn_mask, key_padding_mask" in message


def test_indices_that_the_formula_does_not_use_by_that_name_are_refused(tmp_path):
    message = refused(tmp_path, elementwise(indices='["i", "k"]'))
    assert message.startswith("claim course.first: field with")


def test_a_typo_among_the_results_to_compare_is_refused(tmp_path):
    message = refused(tmp_path, claim(property='"matches_reference"', with_='{ results = ["alowed"] }'))
    assert "field with.results" in message
    assert "alowed" in message


def test_a_typo_in_the_dimension_that_a_property_is_about_is_refused(tmp_path):
    text = claim(property='"prefix_consistent"', with_='{ result = "allowed", length = "t" }')
    message = refused(tmp_path, text)
    assert "field with.length" in message
    assert "T" in message


def test_a_shape_with_a_name_that_the_domain_lacks_is_refused(tmp_path):
    text = claim(property='"shape"', with_='{ result = "allowed", shape = "[T, S]" }')
    assert "unknown name S" in refused(tmp_path, text)


def test_a_worked_example_that_is_no_table_of_numbers_is_refused(tmp_path):
    text = claim(property='"example"', with_='{ result = "allowed", unit = 1, expected = [[1], [1, 1]] }')
    assert "field with.expected" in refused(tmp_path, text)


def test_a_property_without_code_is_refused(tmp_path):
    """A spec file may name a property; only triu itself can define one."""
    message = refused(tmp_path, '[property.shiny]\nhow = "It shines."\n' + claim(property='"shiny"'))
    assert "property" in message


# roles and domains


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ('title = "Countdown"', 'titel = "Countdown"', "titel"),
        ('title = "Countdown"', "", "missing field title"),
        ('names = ["countdown", "count_down"]', "names = []", "field names"),
        ('kind = "size"', 'kind = "sizes"', "field argument.0.kind"),
        ('kind = "size"', "", "missing field kind"),
        ('shape = "[n]"', 'shape = "n"', "field shape"),
        ('shape = "[n]"', 'shape = "[n"', "field shape"),
        ('default = "zero"', 'default = "zeros"', "'zeros'"),
        ('kind = "declared"', 'kind = "guessed"', "probed, named, declared"),
        ('kind = "size"', 'kind = "size"\nvalue = "open(1)"', "field value"),
        ('kind = "size"', 'kind = "array"\nshape = "n, 2"', "shape"),
        ('kind = "size"', 'kind = "size"\nunless = "m"', "unless"),
    ],
)
def test_a_mistake_in_a_role_is_told_with_the_role(tmp_path, right, wrong, told):
    message = refused(tmp_path, OWN_ROLE.replace(right, wrong, 1))
    assert message.startswith("role countdown: ")
    assert told in message


@pytest.mark.parametrize("values", ['"6..1"', '"1..x"', "6", "[]", "[1.5]"])
def test_a_mistake_in_a_domain_is_told_with_the_domain(tmp_path, values):
    message = refused(tmp_path, OWN_ROLE.replace('n = "1..6"', f"n = {values}"))
    assert message.startswith("domain small: ")
    assert "n" in message


def test_a_table_that_no_spec_file_has_is_refused_with_those_it_has(tmp_path):
    message = refused(tmp_path, "[claims]\n")
    assert "unknown field claims; did you mean claim?" in message


def test_claims_are_a_list_of_tables(tmp_path):
    assert "field claim" in refused(tmp_path, 'claim = "course.first"\n')

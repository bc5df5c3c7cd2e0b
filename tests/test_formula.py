"""Formulas and symbolic shapes: a small language over a whitelist, never ``eval``."""

from __future__ import annotations

import math

import numpy as np
import pytest
from triu.spec import FormulaError, parse, parse_shape
from triu.spec.formula import FUNCTIONS, MAX_DEPTH, MAX_LENGTH


def refusal(text, variables=None):
    """What parsing the text is refused with."""
    with pytest.raises(FormulaError) as caught:
        parse(text, variables)
    return str(caught.value)


# what a formula may say


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("7 / 2", 3.5),
        ("7 // 2", 3),
        ("-7 % 4", 1),
        ("2 ** 3", 8),
        ("10000 ** 0.5", 100),
        ("-T + +T", 0),
        ("T * (T + 1) / 2", 15),
        ("T > 3", True),
        ("T == 5 and not T != 5", True),
        ("T < 3 or T > 4", True),
        ("1 < T <= 5", True),
        ("1 < T < 5", False),
        ("1 if T > 3 else 2", 1),
        ("min(T, 3) + max(T, 3)", 8),
        ("min(T, 3, 2)", 2),
        ("abs(-T)", 5),
        ("floor(T / 2)", 2),
        ("sqrt(T - 1)", 2),
        ("exp(log(T))", pytest.approx(5)),
        ("sin(pi / 2) + cos(0)", 2),
        ("where(T > 3, 1, 0)", 1),
        ("inf", math.inf),
        ("dtype == 'float32'", True),
        ("True", True),
    ],
)
def test_a_formula_of_numbers_means_what_it_says(text, expected):
    assert parse(text)(T=5, dtype="float32") == expected


def test_arrays_are_compared_entry_by_entry():
    i, j = np.indices((3, 3))
    assert (parse("j > i")(i=i, j=j) == np.triu(np.ones((3, 3), dtype=bool), 1)).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x > 1 and x < 4", [False, False, True, True, False]),
        ("x < 1 or x > 3", [True, False, False, False, True]),
        ("not x > 1", [True, True, False, False, False]),
        ("0 < x < 3", [False, True, True, False, False]),
        ("x % 2 == 0 and flag", [True, False, True, False, True]),
        ("where(x > 2, 1, 0) == 1", [False, False, False, True, True]),
        ("(1 if x > 2 else 0) == 1", [False, False, False, True, True]),
        ("max(x, 2) == 2", [True, True, True, False, False]),
        ("min(x, 2, 1) == x", [True, True, False, False, False]),
    ],
)
def test_logic_and_choice_work_entry_by_entry_on_arrays(text, expected):
    assert parse(text)(x=np.arange(5), flag=True).tolist() == expected


def test_the_formula_of_the_positional_encoding_gives_its_table():
    pos, c = np.meshgrid(np.arange(3), np.arange(4), indexing="ij")
    formula = parse(
        "sin(pos / 10000 ** (2 * (c // 2) / d)) if c % 2 == 0 else cos(pos / 10000 ** (2 * (c // 2) / d))"
    )
    expected = [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]
    assert formula(pos=pos, c=c, d=4)[1] == pytest.approx(expected, abs=1e-15)


def test_a_formula_knows_its_free_variables():
    assert parse("sin(pos) + pi * d - inf").names == {"pos", "d"}


def test_a_formula_prints_as_it_was_written():
    assert str(parse("j  >  i")) == "j  >  i"


def test_equal_texts_are_equal_formulas():
    assert parse("T + 1") == parse("T + 1")


# what it may not


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("T.real", "Attribute"),
        ("().__class__", "Attribute"),
        ("x[0]", "Subscript"),
        ("lambda: 1", "Lambda"),
        ("[i for i in x]", "ListComp"),
        ("{i for i in x}", "SetComp"),
        ("{i: i for i in x}", "DictComp"),
        ("max(i for i in x)", "GeneratorExp"),
        ("[1, 2]", "List"),
        ("{1: 2}", "Dict"),
        ("(1, 2)", "Tuple"),
        ("(y := 1)", "NamedExpr"),
        ("f'{T}'", "JoinedStr"),
        ("max(*x)", "Starred"),
        ("T is None", "Compare"),
        ("T in x", "Compare"),
        ("T @ T", "BinOp"),
        ("T << 9", "BinOp"),
        ("T | 1", "BinOp"),
        ("~T", "UnaryOp"),
        ("None", "Constant"),
        ("1j", "Constant"),
        ("b'x'", "Constant"),
        ("...", "Constant"),
    ],
)
def test_syntax_beyond_the_whitelist_is_refused_by_name(text, named):
    assert named in refusal(text)


@pytest.mark.parametrize(
    "text", ["eval('1')", "__import__('os')", "open('x')", "print(T)", "round(T)", "T(1)"]
)
def test_calling_an_unknown_function_is_refused_with_the_functions_there_are(text):
    message = refusal(text)
    assert text.split("(")[0] in message
    assert all(name in message for name in FUNCTIONS)


@pytest.mark.parametrize("text", ["().__class__.mro()", "sin.__call__(1)", "(lambda: 1)()", "sin(1)(2)"])
def test_calling_anything_but_a_name_is_refused(text):
    assert "is not allowed" in refusal(text)


def test_keyword_arguments_are_refused():
    refusal("sin(x=1)")


@pytest.mark.parametrize(
    "text", ["", "   ", "T +", "(T", "T T", "T = 1", "import os", "T; T", "T\x00", "T\nT"]
)
def test_text_that_is_no_expression_does_not_parse(text):
    assert "does not parse" in refusal(text)


@pytest.mark.parametrize("value", [5, None, ["T"], b"T"])
def test_a_formula_is_a_string(value):
    assert "is a string" in refusal(value)


def test_a_name_that_is_not_known_here_is_refused_with_the_known_ones():
    message = refusal("T + S", ["T", "d"])
    assert "unknown name S" in message
    assert "d, T" in message or "T, d" in message


def test_a_formula_that_is_too_long_is_refused():
    assert str(MAX_LENGTH) in refusal("1+" * MAX_LENGTH + "1")


@pytest.mark.parametrize(
    "text",
    [
        "-" * (MAX_DEPTH + 5) + "1",
        "sin(" * (MAX_DEPTH + 5) + "1" + ")" * (MAX_DEPTH + 5),
        "(" * 190 + ")" * 190,
    ],
)
def test_a_formula_that_is_too_deep_is_refused(text):
    refusal(text)


# what goes wrong while it is evaluated


def test_a_missing_variable_is_named():
    with pytest.raises(FormulaError, match=r"'T \+ S'.*'S'"):
        parse("T + S")(T=1)


@pytest.mark.parametrize(
    "text", ["1 / 0", "1 // 0", "1 % 0", "sqrt(-1)", "log(0)", "'a' + 1", "-'a'", "1 < 'a'"]
)
def test_impossible_arithmetic_is_a_formula_error_that_quotes_the_formula(text):
    with pytest.raises(FormulaError) as caught:
        parse(text)()
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["sin()", "sin(1, 2)", "min(1)", "where(1)", "abs(1, 2)"])
def test_a_wrong_number_of_arguments_is_a_formula_error(text):
    with pytest.raises(FormulaError):
        parse(text)()


def test_a_power_beyond_floating_point_is_refused_and_not_computed():
    with pytest.raises(FormulaError):
        parse("9 ** 9 ** 9")()


def test_powers_of_whole_numbers_are_floating_point():
    assert parse("2 ** 1000")() == 2.0**1000
    assert isinstance(parse("2 ** 10")(), float)


def test_powers_of_a_number_to_an_array_are_floating_point():
    assert parse("10 ** x")(x=np.array([-1, 25])) == pytest.approx([0.1, 1e25])


def test_powers_of_an_array_of_whole_numbers_to_a_negative_exponent_are_fractions():
    assert parse("x ** -1")(x=np.array([2, 4])) == pytest.approx([0.5, 0.25])


def test_powers_of_an_array_of_whole_numbers_do_not_wrap_around():
    assert parse("x ** 20")(x=np.array([10])) == pytest.approx([1e20])


def test_a_root_of_a_negative_number_is_refused_and_not_complex():
    with pytest.raises(FormulaError):
        parse("(-8) ** 0.5")()


@pytest.mark.parametrize("text", ["'ab' * 3", "3 * 'ab'", "'%9d' % 1", "'a' + 'b'"])
def test_strings_are_compared_and_never_computed_with(text):
    with pytest.raises(FormulaError):
        parse(text)()


# shapes


def test_a_symbolic_shape_has_a_formula_for_each_axis():
    shape = parse_shape("[B * h, T, 2 * d]")
    assert [axis(B=2, h=3, T=5, d=4) for axis in shape] == [6, 5, 8]


def test_a_shape_may_have_no_axis():
    assert parse_shape("[]") == ()


def test_a_shape_is_written_in_brackets():
    assert [axis.text for axis in parse_shape("[B, T]")] == ["B", "T"]


@pytest.mark.parametrize("text", ["B, T", "(B, T)", "B"])
def test_a_shape_without_brackets_is_refused(text):
    with pytest.raises(FormulaError, match="brackets"):
        parse_shape(text)


@pytest.mark.parametrize("text", ["T", "T * S", "'[T]'", "{T, S}"])
def test_a_shape_without_brackets_is_refused_with_an_example(text):
    with pytest.raises(FormulaError, match=r"\[B, T, d\]"):
        parse_shape(text)


def test_an_axis_is_held_to_the_same_whitelist():
    with pytest.raises(FormulaError, match="not allowed"):
        parse_shape("[T, open('x')]")


def test_an_unknown_name_in_a_shape_is_refused():
    with pytest.raises(FormulaError, match="unknown name S"):
        parse_shape("[T, S]", ["T"])

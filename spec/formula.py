"""Formulas and symbolic shapes of a claim: parsed once, evaluated over a whitelist of syntax nodes.

A formula such as ``j > i`` or ``sin(pos / 10000 ** (2 * (c // 2) / d))`` is data in a spec
file.  It is parsed with :mod:`ast` and compiled to closures; nothing is ever passed to ``eval``.
Variables may be scalars or NumPy arrays; comparison and logic then work element by element.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_LENGTH = 400
MAX_DEPTH = 40

_Compiled = Callable[[Mapping[str, Any]], Any]


class FormulaError(ValueError):
    """A formula that cannot be read; the message says what was found and what is allowed."""


def _is_array(*values: Any) -> bool:
    return any(hasattr(v, "__array__") for v in values)


def _elementwise(name: str) -> Callable[..., Any]:
    """A function of that name that takes plain numbers without importing NumPy, and arrays with it."""

    def apply(*args: Any) -> Any:
        if _is_array(*args):
            import numpy as np

            return getattr(np, name)(*args)
        return getattr(math, name)(*args)

    return apply


def _fold(scalar: Callable[..., Any], array: str) -> Callable[..., Any]:
    def apply(*args: Any) -> Any:
        if len(args) < 2:
            raise FormulaError(f"{scalar.__name__} takes at least two arguments")
        if _is_array(*args):
            import numpy as np

            result = args[0]
            for other in args[1:]:
                result = getattr(np, array)(result, other)
            return result
        return scalar(args)

    return apply


def _where(condition: Any, yes: Any, no: Any) -> Any:
    if _is_array(condition, yes, no):
        import numpy as np

        return np.where(condition, yes, no)
    return yes if condition else no


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _elementwise(name) for name in ("sin", "cos", "exp", "log", "sqrt", "floor")},
    "abs": abs,
    "min": _fold(min, "minimum"),
    "max": _fold(max, "maximum"),
    "where": _where,
}
CONSTANTS: dict[str, Any] = {"pi": math.pi, "inf": math.inf}


def _power(base: Any, exponent: Any) -> Any:
    """``**`` in floating point, so that a formula cannot ask for a number of a million digits."""
    if _is_array(base, exponent):
        import numpy as np

        return np.asarray(base, dtype=np.float64) ** exponent
    result = float(base) ** exponent
    if isinstance(result, complex):
        raise ValueError(f"{base} ** {exponent} is no real number")
    return result


def _numeric(apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Arithmetic on numbers alone: a string can be compared, not computed with."""

    def guarded(a: Any, b: Any) -> Any:
        if isinstance(a, str) or isinstance(b, str):
            raise TypeError("strings cannot be computed with")
        return apply(a, b)

    return guarded


def _logic(name: str, scalar: Callable[[bool, bool], bool]) -> Callable[[Any, Any], Any]:
    def apply(a: Any, b: Any) -> Any:
        if _is_array(a, b):
            import numpy as np

            return getattr(np, name)(a, b)
        return scalar(bool(a), bool(b))

    return apply


_and = _logic("logical_and", lambda a, b: a and b)
_or = _logic("logical_or", lambda a, b: a or b)


def _not(value: Any) -> Any:
    if _is_array(value):
        import numpy as np

        return np.logical_not(value)
    return not value


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: _not,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


@dataclass(frozen=True)
class Formula:
    """One parsed formula.  ``formula(T=5)`` evaluates it; ``names`` are its free variables."""

    text: str
    names: frozenset[str]
    _run: _Compiled = field(repr=False, compare=False)

    def __call__(self, variables: Mapping[str, Any] | None = None, /, **more: Any) -> Any:
        """The value for the given variables (scalars or arrays that broadcast).

        Raises FormulaError when a variable is missing or the arithmetic is impossible.
        """
        scope = {**(variables or {}), **more}
        try:
            return self._run(scope)
        except (KeyError, ZeroDivisionError, TypeError, ValueError, OverflowError) as error:
            what = f"no value for {error}" if isinstance(error, KeyError) else str(error)
            raise FormulaError(f"formula {self.text!r}: {what}") from error

    def __str__(self) -> str:
        return self.text


def parse(text: str, variables: Iterable[str] | None = None) -> Formula:
    """Parse one formula.

    Args:
        text: an expression over numbers, strings, names, ``+ - * / // % **``, comparisons, ``and``,
            ``or``, ``not``, ``a if c else b`` and the functions of :data:`FUNCTIONS`.
        variables: the names that may occur; None admits any.

    Raises:
        FormulaError: the text is not such an expression; the message names the offending part.
    """
    if not isinstance(text, str):
        raise FormulaError(f"a formula is a string, not {text!r}")
    node = _syntax(text)
    names: set[str] = set()
    run = _compile(node, text, names, 0)
    if variables is not None:
        _check_names(text, names, variables)
    return Formula(text, frozenset(names), run)


def parse_shape(text: str, variables: Iterable[str] | None = None) -> tuple[Formula, ...]:
    """Parse a symbolic shape such as ``[B, h, T, S]`` or ``[T, 2 * d]`` into one formula per axis."""
    node = _syntax(text)
    if not isinstance(node, ast.List):
        raise FormulaError(f"{text!r} is no shape: write it in brackets, like [B, T, d]")
    return tuple(parse(ast.unparse(axis), variables) for axis in node.elts)


def _syntax(text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        raise FormulaError(f"formula of {len(text)} characters; at most {MAX_LENGTH} are read")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise FormulaError(f"formula {text!r} does not parse: {getattr(error, 'msg', error)}") from None


def _check_names(text: str, names: set[str], variables: Iterable[str]) -> None:
    known = sorted(set(variables))
    unknown = sorted(names - set(known))
    if unknown:
        raise FormulaError(
            f"formula {text!r}: unknown name {', '.join(unknown)}; known here: {', '.join(known) or 'none'}"
        )


def _compile(node: ast.expr, text: str, names: set[str], depth: int) -> _Compiled:
    """Turn one whitelisted node into a closure; every other node is refused by name."""
    if depth > MAX_DEPTH:
        raise FormulaError(f"formula {text[:40]!r}… is nested deeper than {MAX_DEPTH}")

    def sub(child: ast.expr) -> _Compiled:
        return _compile(child, text, names, depth + 1)

    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return lambda scope: value
        case ast.Name(id=name):
            if name in CONSTANTS:
                constant = CONSTANTS[name]
                return lambda scope: constant
            names.add(name)
            return lambda scope: scope[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            apply, a, b = _numeric(_BINARY[type(op)]), sub(left), sub(right)
            return lambda scope: apply(a(scope), b(scope))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            apply_one, a = _UNARY[type(op)], sub(operand)
            return lambda scope: apply_one(a(scope))
        case ast.BoolOp(op=op, values=values):
            combine = _and if isinstance(op, ast.And) else _or
            parts = [sub(value) for value in values]

            def run_logic(scope: Mapping[str, Any]) -> Any:
                result = parts[0](scope)
                for part in parts[1:]:
                    result = combine(result, part(scope))
                return result

            return run_logic
        case ast.Compare(left=left, ops=ops, comparators=comparators) if all(
            type(o) in _COMPARE for o in ops
        ):
            operands = [sub(left), *map(sub, comparators)]
            tests = [_COMPARE[type(o)] for o in ops]

            def run_compare(scope: Mapping[str, Any]) -> Any:
                values = [operand(scope) for operand in operands]
                result = tests[0](values[0], values[1])
                for test, a, b in zip(tests[1:], values[1:], values[2:], strict=False):
                    result = _and(result, test(a, b))
                return result

            return run_compare
        case ast.IfExp(test=test, body=body, orelse=orelse):
            c, yes, no = sub(test), sub(body), sub(orelse)
            return lambda scope: _where(c(scope), yes(scope), no(scope))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            function, parts = FUNCTIONS[name], [sub(argument) for argument in args]
            return lambda scope: function(*(part(scope) for part in parts))
        case ast.Call(func=called):
            raise FormulaError(
                f"formula {text!r}: call of {ast.unparse(called)} is not allowed; "
                f"functions: {', '.join(sorted(FUNCTIONS))}"
            )
        case _:
            raise FormulaError(
                f"formula {text!r}: {type(node).__name__} ({ast.unparse(node)}) is not allowed"
            )

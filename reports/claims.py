"""Claims for a terminal: a table of them, or one explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tabulate import tabulate

from ..spec import Claim, PropertySpec
from .text import wrapped


def claims_text(claims: Sequence[Claim]) -> str:
    """A table of claims: id, level, role, first source."""
    rows = [[c.id, c.level, c.role_label, c.source[0]] for c in claims]
    return (
        tabulate(
            rows, ["claim", "level", "role", "source"], tablefmt="simple", maxcolwidths=[None, None, None, 60]
        )
        + "\n"
    )


def claim_text(claim: Claim, how: PropertySpec, width: int = 100) -> str:
    """One claim explained: statement, how it is checked, what must be seen, source."""
    lines = [
        f"{claim.id}  {claim.level}  ({claim.role_label})",
        "",
        *wrapped(claim.title, width),
        "",
        *wrapped(claim.statement, width),
    ]
    lines += ["", "How it is checked", *wrapped(how.how, width, "  ")]
    cases = ", ".join(f"{name} {_values(values)}" for name, values in claim.domain.dimensions.items())
    lines += wrapped(f"Cases: {cases}", width, "  ")
    given = {
        name: _argument(value) for name, value in claim.arguments.items() if not isinstance(value, Mapping)
    }
    if given:
        lines += wrapped(
            "With: " + "; ".join(f"{name} = {value}" for name, value in given.items()), width, "  "
        )
    if claim.requires:
        lines += wrapped(f"Only where: {'; '.join(f.text for f in claim.requires)}", width, "  ")
    seen = "; ".join(f.text for f in claim.evidence) or "at least one case"
    lines += ["", "What must be seen for a pass", *wrapped(seen, width, "  ")]
    conditions = [
        *claim.needs,
        *(f"{name} is {' or '.join(values)}" for name, values in claim.conventions.items()),
    ]
    if conditions:
        lines += wrapped(f"Concerns candidates with: {'; '.join(conditions)}", width, "  ")
    if claim.tolerance:
        lines += wrapped(
            f"Allowed error: {claim.tolerance.absolute:g} ({claim.tolerance.reason})", width, "  "
        )
    if claim.rests_on:
        lines += ["", "Rests on", *wrapped(", ".join(claim.rests_on), width, "  ")]
    lines += ["", "Source", *(line for s in claim.source for line in wrapped(s, width, "  "))]
    lines += ["", "If it breaks", *wrapped(claim.hint, width, "  "), "", f"Defined in {claim.file}"]
    return "\n".join(lines) + "\n"


def _values(values: Sequence[Any]) -> str:
    if (
        len(values) > 4
        and all(isinstance(v, int) and not isinstance(v, bool) for v in values)
        and values == tuple(range(values[0], values[-1] + 1))
    ):
        return f"{values[0]}…{values[-1]}"
    return "{" + ", ".join(str(v).lower() if isinstance(v, bool) else str(v) for v in values) + "}"


def _argument(value: Any) -> str:
    if isinstance(value, tuple) and value and hasattr(value[0], "text"):
        return "[" + ", ".join(axis.text for axis in value) + "]"
    return getattr(value, "text", None) or str(list(value) if isinstance(value, tuple) else value)

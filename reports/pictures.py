"""Pictures of a failure as SVG: heat maps of what was expected beside what was observed, curves for positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from markupsafe import Markup

from ..spec import Picture

STEPS = 8  # shades between nothing and the strongest; diverging ones have half as many to each side
NUMBERS_UP_TO = 12  # columns; wider matrices are drawn without numbers
Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Drawn:
    """A picture ready for a page: titled drawings, and a line that says how to read them."""

    panels: tuple[tuple[str, Markup], ...]
    caption: str


def drawn(picture: Picture) -> Drawn:
    """Heat maps (and curves, for positions) of a picture.  All text in them is escaped."""
    panels = []
    scale = _Scale([*(picture.expected or ()), *picture.observed])
    wrong = set(picture.wrong)
    right = "may move" if picture.kind == "leak" else "expected"
    found = "moves" if picture.kind == "leak" else "observed"
    if picture.expected is not None:
        panels.append((right, _heat_map(picture, picture.expected, set(), scale, right)))
    panels.append((found, _heat_map(picture, picture.observed, wrong, scale, found)))
    if picture.kind == "positions" and picture.expected is not None and len(picture.observed) >= 8:
        panels += [
            (f"coordinate {c}: expected solid, observed dashed", curve) for c, curve in _curves(picture)
        ]
    return Drawn(tuple(panels), _caption(picture, scale))


class _Scale:
    """From a number to the name of a shade: s0 … s8 for shares of 1, n4 … p4 for numbers of both signs."""

    def __init__(self, rows: Rows) -> None:
        numbers = [v for row in rows for v in row if _is_number(v)]
        self.shares = all(0 <= v <= 1 for v in numbers)
        self.top = max((abs(v) for v in numbers), default=1.0) or 1.0

    def shade(self, value: Any) -> str:
        if value is None:
            return "any"
        if not _is_number(value):
            return "nan"
        if self.shares:
            return f"s{round(value * STEPS)}"
        step = round(abs(value) / self.top * (STEPS // 2))
        return "z" if step == 0 else f"{'n' if value < 0 else 'p'}{step}"


def _is_number(value: Any) -> bool:
    return (isinstance(value, float) and math.isfinite(value)) or (
        isinstance(value, int) and abs(value) < 1e15
    )


def _heat_map(picture: Picture, rows: Rows, wrong: set[tuple[int, int]], scale: _Scale, name: str) -> Markup:
    height, width = len(rows), max(map(len, rows))
    dotted = picture.kind == "leak"
    texts = [[_text(v, dotted) for v in row] for row in rows] if width <= NUMBERS_UP_TO else []
    cell = max(24, 7 * max((len(t) for row in texts for t in row), default=0) + 6) if texts else 10
    tall = min(cell, 26)
    left, top = 34, 32
    across = left + max(width * cell, 7 * (len(_plural(picture.columns)) + 2)) + 2
    down = top + max(height * tall, 7 * (len(_plural(picture.rows)) + 2)) + 2
    parts = [
        f'<svg viewBox="0 0 {across} {down}" width="{across}" role="img">',
        f"<title>{Markup.escape(_described(picture, rows, wrong, name))}</title>",
    ]
    parts += _axes(picture, width, height, cell, tall, left, top)
    shades: dict[str, list[str]] = {}
    for i, row in enumerate(rows):
        j = 0
        for shade, alike in groupby(map(scale.shade, row)):
            count = len(list(alike))
            wide = cell if texts else cell * count  # small cells of one shade are one
            for _ in range(count if texts else 1):
                place = f"M{left + j * cell} {top + i * tall}h{wide}v{tall}h-{wide}z"
                shades.setdefault(shade, []).append(place)
                j += wide // cell
    parts += [f'<path class="{shade}" d="{"".join(places)}"/>' for shade, places in shades.items()]
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            if text:
                strong = ' class="on"' if _is_strong(scale.shade(rows[i][j])) else ""
                x, y = left + j * cell + cell // 2, top + i * tall + tall // 2 + 4
                parts.append(f'<text x="{x}" y="{y}"{strong}>{Markup.escape(text)}</text>')
    if wrong:
        edges = _outline(wrong, lambda i, j: (left + j * cell, top + i * tall), cell, tall)
        parts.append(f'<path class="wrong" d="{edges}"/>')
    return Markup("".join([*parts, "</svg>"]))


def _outline(
    cells: set[tuple[int, int]], corner: Callable[[int, int], tuple[int, int]], cell: int, tall: int
) -> str:
    """The edges between cells that are wrong and those that are not."""
    edges = []
    for i, j in sorted(cells):
        x, y = corner(i, j)
        if (i - 1, j) not in cells:
            edges.append(f"M{x} {y}h{cell}")
        if (i + 1, j) not in cells:
            edges.append(f"M{x} {y + tall}h{cell}")
        if (i, j - 1) not in cells:
            edges.append(f"M{x} {y}v{tall}")
        if (i, j + 1) not in cells:
            edges.append(f"M{x + cell} {y}v{tall}")
    return "".join(edges)


def _axes(
    picture: Picture, width: int, height: int, cell: int, tall: int, left: int, top: int
) -> Iterable[str]:
    """Indices along both sides, every fifth where cells are small, and what they count."""
    every = 1 if cell > 12 else 5
    yield f'<text class="axis start" x="{left}" y="11">{Markup.escape(_plural(picture.columns))} →</text>'
    yield (
        f'<text class="axis start" transform="rotate(-90)" x="-{top + height * tall}" y="10">'
        f"← {Markup.escape(_plural(picture.rows))}</text>"
    )
    for j in range(width):
        n = picture.start[1] + j
        if n % every == 0:
            yield f'<text class="axis" x="{left + j * cell + cell // 2}" y="{top - 5}">{n}</text>'
    for i in range(height):
        n = picture.start[0] + i
        if n % every == 0:
            yield f'<text class="axis end" x="{left - 5}" y="{top + i * tall + tall // 2 + 4}">{n}</text>'


def _is_strong(shade: str) -> bool:
    return shade[1:] in ("5", "6", "7", "8") if shade[0] == "s" else shade in ("n3", "n4", "p3", "p4")


def _text(value: Any, dotted: bool) -> str:
    if value is None:
        return "·"
    if dotted:
        return "●" if value else ""
    if not _is_number(value):
        return str(value)[:5]
    if isinstance(value, int):
        return str(value) if abs(value) < 1e5 else f"{value:.0e}"
    text = f"{value:.2f}" if 0.005 <= abs(value) < 1000 else f"{value:.0e}"
    return text.removeprefix("0") if text.startswith("0.") else text.replace("-0.", "-.", 1)


def _plural(name: str) -> str:
    return {"query": "queries"}.get(name, f"{name}s" if name.isalpha() else name)


def _described(picture: Picture, rows: Rows, wrong: set[tuple[int, int]], name: str) -> str:
    """The drawing in a sentence, for those who do not see it."""
    told = f"{name}: {len(rows)} {_plural(picture.rows)} by {max(map(len, rows))} {_plural(picture.columns)}"
    if not wrong:
        return told
    cells = [f"({picture.start[0] + i}, {picture.start[1] + j})" for i, j in sorted(wrong)]
    more = f" and {len(cells) - 6} more" if len(cells) > 6 else ""
    return f"{told}; {len(cells)} wrong: {', '.join(cells[:6])}{more}"


def _caption(picture: Picture, scale: _Scale) -> str:
    rows, columns = len(picture.observed), max(map(len, picture.observed))
    case = ", ".join(f"{name} = {value}" for name, value in picture.case.items())
    parts = []
    if picture.kind == "leak":
        parts.append(
            "Which input moves which output: a dot says that a change at that input alone changes that output."
        )
    parts.append("Outlined cells are wrong.")
    if not scale.shares and picture.kind == "matrix":
        parts.append("Blue is positive, orange negative.")
    if picture.expected is not None and any(v is None for row in picture.expected for v in row):
        parts.append("Cells with a dot may hold anything here.")
    if (rows, columns) != picture.size:
        first, second = picture.start
        parts.append(
            f"Shown are {_plural(picture.rows)} {first} to {first + rows - 1} of {picture.size[0]} and "
            f"{_plural(picture.columns)} {second} to {second + columns - 1} of {picture.size[1]}."
        )
    if case:
        parts.append(f"A larger case than the smallest, with {case}.")
    return " ".join(parts)


def _curves(picture: Picture) -> Iterable[tuple[int, Markup]]:
    """Expected and observed along the positions, for the two coordinates that depart most."""
    assert picture.expected is not None
    width, height, left, top = 300, 110, 34, 8
    errors = {}
    for c in range(min(map(len, (*picture.observed, *picture.expected)))):
        pairs = [(e[c], o[c]) for e, o in zip(picture.expected, picture.observed, strict=True)]
        errors[c] = max((abs(e - o) for e, o in pairs if _is_number(e) and _is_number(o)), default=0.0)
    for c in sorted(sorted(errors, key=lambda c: -errors[c])[:2]):
        columns = {
            "right": [row[c] for row in picture.expected],
            "found": [row[c] for row in picture.observed],
        }
        numbers = [v for values in columns.values() for v in values if _is_number(v)]
        low, high = min([-1.0, *numbers]), max([1.0, *numbers])
        step = width / max(1, len(picture.observed) - 1)
        n = picture.start[1] + c
        parts = [
            f'<svg viewBox="0 0 {left + width + 8} {top + height + 20}" width="{left + width + 8}" role="img">',
            f"<title>coordinate {n} along the positions, expected and observed</title>",
            f'<path class="frame" d="M{left} {top}v{height}h{width}"/>',
            f'<text class="axis end" x="{left - 4}" y="{top + 8}">{high:.3g}</text>',
            f'<text class="axis end" x="{left - 4}" y="{top + height}">{low:.3g}</text>',
            f'<text class="axis start" x="{left}" y="{top + height + 14}">positions {picture.start[0]} to '
            f"{picture.start[0] + len(picture.observed) - 1}</text>",
        ]
        for name, values in columns.items():
            points = [
                f"{left + k * step:.1f} {top + (high - v) / (high - low) * height:.1f}"
                for k, v in enumerate(values)
                if _is_number(v)
            ]
            parts.append(f'<path class="{name}" d="M{"L".join(points)}"/>')
        yield n, Markup("".join([*parts, "</svg>"]))

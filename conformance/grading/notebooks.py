"""Turns a notebook into Python: the text of its code cells, without what only a notebook understands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

KEPT_MAGICS = ("time", "capture", "prun")
SHOWN = 60

MODULE = '''"""The code cells of a notebook, each run on its own."""

from triu.conformance.candidates.cells import run_cells as _run_cells

__triu_cells__ = _run_cells(globals(), {source!r}, {ranges!r})
'''

_CELL_MAGIC = re.compile(r"\s*%%(\w+)\s*(.*)")
_TIME = re.compile(r"(\s*)%time\s+(\S.*)")
_IGNORED = re.compile(
    r"\s*(?:%{1,2}[A-Za-z_]|!|\?)"  # a magic, a shell line, help
    r"|\s*[A-Za-z_][\w., \[\]]*=\s*(?:!(?!=)|%[A-Za-z_])"  # the result of one
    r"|\s*%?[\w.*]+\?{1,2}\s*$"  # help, asked for at the end
)
_TOKEN = re.compile(
    r"#.*|(?P<triple>\"\"\"|''')|\"(?:\\.|[^\"\\])*\"?|'(?:\\.|[^'\\])*'?|(?P<opens>[(\[{])|(?P<closes>[)\]}])"
)
_CLOSING = {
    quote: re.compile(rf"(?:\\.|[^\\])*?{quote}", re.DOTALL)
    for quote in ('"""', "'''")  # prefixes do not matter: no raw string ends in a quote after a backslash
}


@dataclass(frozen=True)
class Notebook:
    """The code of a notebook as Python.

    Attributes:
        text: of all code cells, one after another, what was ignored as comments.
        ranges: number (the n-th code cell, from 1), first and last line in ``text``, of each cell that runs.
        notes: what was ignored.
        written: files that cells write (``%%writefile``), name to text.
    """

    text: str
    ranges: tuple[tuple[int, int, int], ...]
    notes: tuple[str, ...]
    written: Mapping[str, str]

    def module(self, source: str) -> str:
        """The text of a module that runs the cells; ``source`` is where ``text`` lies, seen from its folder.

        It sets ``__triu_cells__`` to a list of number and error of each cell that failed.
        """
        return MODULE.format(source=source, ranges=list(self.ranges))


def read_notebook(text: str) -> Notebook:
    """Read a notebook of nbformat 3 or 4.

    Raises:
        ValueError: it is not such a notebook, or not one in Python; the message says why.
    """
    lines: list[str] = []
    ranges: list[tuple[int, int, int]] = []
    notes: list[str] = []
    written: dict[str, str] = {}
    for number, source in enumerate(_code_cells(text), 1):
        source = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        lines.append(f"# cell {number}")
        first = len(lines) + 1
        magic, start = _leading_magic(source)
        if magic is None:
            converted, ignored = _as_python(source, start)
            lines += converted
            notes += [
                f"cell {number}, line {n} was ignored: {source[n - 1].strip()[:SHOWN]}" for n in ignored
            ]
            if any(line.strip() for line in source):
                ranges.append((number, first, len(lines)))
        else:
            lines += ["# " + line for line in source]
            name, rest = magic
            if name in ("writefile", "file") and re.fullmatch(r"[A-Za-z]\w*\.py", rest.strip()):
                written[rest.strip()] = "\n".join(source[start + 1 :]) + "\n"
                notes.append(f"cell {number} was taken as the file {rest.strip()}")
            else:
                notes.append(f"cell {number} was skipped: it is a %%{name[:SHOWN]} cell")
        if any(re.search(r"\bget_ipython\s*\(", line) for line in source):
            notes.append(f"cell {number}: get_ipython() was ignored")
    return Notebook("\n".join(lines), tuple(ranges), tuple(notes), written)


def _code_cells(text: str) -> list[str]:
    """The sources of the code cells, in order."""
    import nbformat.reader  # takes a while, and only few hand in notebooks

    try:
        notebook = nbformat.reader.reads(text)  # neither converted nor validated: both write to stderr
        if notebook["nbformat"] not in (3, 4):
            raise ValueError("another version of nbformat")
        metadata = notebook.get("metadata", {})
        kernel, about = metadata.get("kernelspec", {}), metadata.get("language_info", {})
        language = about.get("name") or kernel.get("language")
        sheets = notebook["worksheets"] if notebook["nbformat"] == 3 else [notebook]
        field = "input" if notebook["nbformat"] == 3 else "source"
        sources = [cell[field] for sheet in sheets for cell in sheet["cells"] if cell["cell_type"] == "code"]
    except Exception as error:  # a file may hold anything in place of what these read
        raise ValueError(f"not a notebook that can be read ({type(error).__name__})") from None
    if language and "python" not in str(language).lower():
        raise ValueError(f"a notebook in {str(language)[:SHOWN]}, not in Python")
    if not all(isinstance(source, str) for source in sources):
        raise ValueError("not a notebook that can be read (a cell has no text)")
    return sources


def _leading_magic(source: Sequence[str]) -> tuple[tuple[str, str] | None, int]:
    """The cell magic because of which a cell cannot run, if any, and the index of its line.

    Without one the index is that of the first line after those that may be dropped (``%%time``).
    """
    start = 0
    for index, line in enumerate(source):
        magic = _CELL_MAGIC.match(line)
        if magic is None:
            if line.strip():
                break
        elif magic[1] in KEPT_MAGICS:
            start = index + 1
        else:
            return (magic[1], magic[2]), index
    return None, start


def _as_python(source: Sequence[str], start: int) -> tuple[list[str], list[int]]:
    """The lines with what is not Python as ``pass``, and the numbers of these (from 1)."""
    lines = ["# " + line for line in source[:start]]
    ignored: list[int] = []
    state = _Scanner()
    dropping = False
    for number, line in enumerate(source[start:], start + 1):
        timed = _TIME.fullmatch(line) if state.between else None
        if dropping or (timed is None and state.between and _IGNORED.match(line)):
            if not dropping:
                ignored.append(number)
            dropping = line.endswith("\\")
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(f"{indent}pass  # {line.strip()}" if number in ignored else f"# {line}")
            continue
        line = timed[1] + timed[2] if timed else line
        state.feed(line)
        lines.append(line)
    return lines, ignored


class _Scanner:
    """Tells, line by line, whether a new statement may begin: not within brackets, strings or after a ``\\``."""

    def __init__(self) -> None:
        self._quote, self._depth, self._continued = "", 0, False

    @property
    def between(self) -> bool:
        """Whether the next line begins a statement."""
        return not (self._quote or self._depth or self._continued)

    def feed(self, line: str) -> None:
        """Take a line of Python."""
        position, comment = 0, False
        while position < len(line):
            if self._quote:
                end = _CLOSING[self._quote].match(line, position)
                if end is None:
                    break
                position, self._quote = end.end(), ""
                continue
            token = _TOKEN.search(line, position)
            if token is None:
                break
            position = token.end()
            comment = token[0].startswith("#")
            if token["triple"]:
                self._quote = token["triple"]
            elif token["opens"]:
                self._depth += 1
            elif token["closes"]:
                self._depth = max(0, self._depth - 1)
        self._continued = not self._quote and not comment and line.endswith("\\")

"""Runs on the candidate's side: the code cells of a notebook, one after another in one namespace.

Standard library only.  ``grading/notebooks.py`` writes the modules that call this.
"""

from __future__ import annotations
import __future__

import linecache
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MAX_MESSAGE = 300
FAILED: list[tuple[str, BaseException]] = []  # cells that failed, and what they raised, until they are told


class _Nothing:
    """Stands for what only a notebook has: takes every attribute and every call, and gives nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self


def run_cells(
    namespace: dict[str, Any], source: str, cells: Iterable[tuple[int, int, int]]
) -> list[tuple[int, str]]:
    """Run cells in a module's namespace; a cell that raises does not keep the next from running.

    Args:
        namespace: of the module; its ``__file__`` becomes the file with the cells, so that what reads source
            finds it there.
        source: the file with the cells, relative to the module's folder.
        cells: number, first and last line (from 1) of each.

    Returns:
        Number and error of each cell that failed, whatever it raised.
    """
    file, told = str(Path(namespace["__file__"]).parent / source), Path(source).stem
    lines = [line + "\n" for line in Path(file).read_text("utf-8").split("\n")]
    shown = list(lines)
    linecache.cache[file] = (0, None, shown, file)  # without a time, so that it is never read again
    namespace.update(__file__=file, __doc__=None, get_ipython=_Nothing(), display=_Nothing())
    failed: list[tuple[int, str]] = []
    flags = 0
    for number, first, last in cells:
        text = "\n" * (first - 1) + "".join(lines[first - 1 : last])
        try:
            code = compile(text, file, "exec", flags, dont_inherit=True)
        except Exception as error:
            failed.append((number, _told(error, first)))
            FAILED.append((f"{told}, cell {number}", error))
            # A class is found by parsing the whole file, which this cell must not spoil.
            shown[first - 1 : last] = ["# " + line for line in lines[first - 1 : last]]
            continue
        flags |= code.co_flags & __future__.annotations.compiler_flag
        try:
            exec(code, namespace)
        except BaseException as error:
            failed.append((number, _told(error, first)))
            FAILED.append((f"{told}, cell {number}", error))
    return failed


def _told(error: BaseException, first: int) -> str:
    """Type and message on one line, a place in the cell for what does not compile."""
    try:
        if isinstance(error, SyntaxError) and error.lineno:
            message = f"{error.msg} (line {error.lineno - first + 1} of the cell)"
        else:
            message = str(error)
    except Exception:
        message = "(its message cannot be shown)"
    name = type(error).__name__
    return (f"{name}: {message}" if message else name)[:MAX_MESSAGE]

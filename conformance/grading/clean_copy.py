"""A clean copy of what was handed in: plain Python in UTF-8, under names that lead nowhere else, within limits."""

from __future__ import annotations

import codecs
import fnmatch
import keyword
import re
import sys
import tokenize
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Literal

from ..candidates.errors import TriuError
from ..candidates.importing import SKIPPED_FILES
from .notebooks import read_notebook

MAX_FILES = 500
MAX_FILE = 20 << 20
MAX_TOTAL = 100 << 20
MAX_DEPTH = 12
MAX_ENTRIES = 20_000  # that are looked at, whatever they are
MAX_RATIO = 100  # by which what is too large may have been packed without being a bomb
MAX_NOTES = 50
MAX_NAME = 200  # bytes

SUFFIXES = (".py", ".ipynb", ".zip")
JUNK = ("__MACOSX", "__pycache__", "node_modules", "site-packages", "Thumbs.db", "desktop.ini")
COMPILED = (".pyc", ".pyo", ".pyd", ".so", ".dll", ".dylib")
LIBRARIES = ("torch", "numpy", "triu", "scipy", "jax", "einops", "tensorflow", "matplotlib")
UNSAFE_CODECS = ("idna", "punycode", "undefined")  # slow without bound, or of no use

Parts = tuple[str, ...]


class SubmissionError(TriuError):
    """A submission cannot be graded; ``word`` says how: ``empty`` or ``unreadable``."""

    def __init__(self, word: Literal["empty", "unreadable"], message: str) -> None:
        super().__init__(message)
        self.word: Literal["empty", "unreadable"] = word
        self.message = message


@dataclass(frozen=True)
class Cells:
    """Which lines of a file came from which cells: number, first and last line of each."""

    notebook: str
    ranges: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Entry:
    """A file within a submission; ``packed`` is its size in a zip."""

    parts: Parts
    size: int
    open: Callable[[], IO[bytes]]
    packed: int | None = None

    @property
    def shown(self) -> str:
        return shown_text("/".join(self.parts))

    @property
    def suffix(self) -> str:
        return Path(self.parts[-1]).suffix.lower()


class Left(Exception):
    """A file is left out; the message completes ``NAME was left out: it …``."""


class Copy:
    """Copies entries within the limits; knows what came of each.

    Attributes:
        python: places of all Python files, those from notebooks too.
        cells: as in Prepared.
    """

    def __init__(self, into: Path, home: Parts, notes: list[str]) -> None:
        self.into, self.notes = into, notes
        self.python: list[Parts] = []
        self.cells: dict[str, Cells] = {}
        self._home = home
        self._taken: set[Parts] = set()
        self._read = 0
        self._problems: list[str] = []
        self._any_code = False

    def take(self, entries: Iterable[Entry]) -> None:
        """Copy everything, Python first; raises SubmissionError for a zip bomb and for too much Python."""
        kinds = {".py": 0, ".ipynb": 1}
        ordered = sorted(entries, key=lambda entry: (kinds.get(entry.suffix, 2), entry.parts))
        for number, entry in enumerate(ordered):
            if number >= MAX_FILES or self._read >= MAX_TOTAL:
                if entry.suffix in kinds:
                    raise SubmissionError(
                        "unreadable",
                        f"more than {MAX_FILES} Python files, or {MAX_TOTAL >> 20} MB; hand in your own files alone",
                    )
                self.notes.append(f"{len(ordered) - number} files were left out: there are too many")
                return
            try:
                self._take(entry)
            except Left as error:
                problem = f"{entry.shown} was left out: it {error}"
                self.notes.append(problem)
                if entry.suffix in kinds:
                    self._problems.append(problem)

    def check(self, names: Collection[str]) -> None:
        """Raises SubmissionError where no Python was found, or none that could be read."""
        if self._any_code:
            return
        if self._problems:
            raise SubmissionError("unreadable", "; ".join(self._problems[:3]))
        if self.python:
            raise SubmissionError("empty", "its Python files hold nothing")
        what = f"; it holds {', '.join(sorted(names)[:5])}" if names else ""
        raise SubmissionError("empty", f"there is no Python file or notebook in it{what}")

    def _take(self, entry: Entry) -> None:
        if entry.suffix in COMPILED:
            raise Left("is compiled; hand in its source")
        if entry.suffix == ".zip":
            raise Left("is a zip within a zip; unpack it first")
        data = self._content(entry)
        if entry.suffix == ".py":
            text, change = _python_text(data)
            if change:
                self.notes.append(f"{entry.shown} {change}")
            self._python(entry, text)
        elif entry.suffix == ".ipynb":
            self._notebook(entry, data)
        else:
            self._write(self._renamed(entry, entry.parts[-1]), data)

    def _content(self, entry: Entry) -> bytes:
        """What is really in a file."""
        content = BytesIO()
        try:
            if entry.size <= MAX_FILE:
                with entry.open() as stream:
                    while content.tell() <= MAX_FILE and (piece := stream.read(1 << 16)):
                        content.write(piece)
                        self._read += len(piece)
        except (OSError, EOFError, ValueError, NotImplementedError, RuntimeError, zlib.error) as error:
            raise Left(f"cannot be read ({shown_text(error)})") from None
        except zipfile.BadZipFile as error:
            raise Left(f"is damaged ({shown_text(error)})") from None
        size = max(entry.size, content.tell())
        if size <= MAX_FILE:
            return content.getvalue()
        if entry.packed and size > MAX_RATIO * entry.packed:
            raise SubmissionError(
                "unreadable",
                f"{entry.shown}: becomes more than {MAX_FILE >> 20} MB when it is unpacked (a zip bomb)",
            )
        raise Left(f"is larger than {MAX_FILE >> 20} MB")

    def _python(self, entry: Entry, text: str) -> None:
        stem = entry.parts[-1][: -len(".py")].replace(".", "_")
        place = self._renamed(entry, f"{stem}.py")
        self._write(place, text.encode("utf-8", "backslashreplace"))
        self.python.append(place)
        self._any_code |= bool(text.strip())

    def _notebook(self, entry: Entry, data: bytes) -> None:
        """Write the module, the file with the cells, and the files that cells write."""
        try:
            notebook = read_notebook(data.decode("utf-8-sig", "replace"))
        except ValueError as error:
            raise Left(f"is {shown_text(error)}") from None
        above = entry.parts[:-1]
        place = self._place((*above, f"{_module_name(Path(entry.parts[-1]).stem)}.py"))
        source = self._place((*above, "_cells", f"{place[-1][:-3]}.ipynb.py"))
        while source[-1] in self.cells:
            source = self._place(source[len(self._home) :])
        self._write(place, notebook.module("/".join(source[len(place) - 1 :])).encode())
        self._write(source, notebook.text.encode("utf-8", "backslashreplace"))
        self.python.append(place)
        self.cells[source[-1]] = Cells(shown_text(entry.parts[-1]), notebook.ranges)
        self.notes += [f"{entry.shown}, {shown_text(note)}" for note in notebook.notes]
        self._any_code |= bool(notebook.ranges)
        for name, text in notebook.written.items():
            if (*self._home, *above, name) in self._taken:
                self.notes.append(
                    f"{entry.shown}: {name} was handed in as well; the file counts, not the cell"
                )
            else:
                written = Entry((*above, name), len(text), BytesIO)
                self._python(written, _python_text(text.encode("utf-8", "backslashreplace"))[0])

    def _place(self, parts: Parts) -> Parts:
        """A place that is free, with safe names."""
        above = tuple(safe_name(part) for part in parts[:-1])
        place = (*self._home, *above)
        place = (*place, unused_name(safe_name(parts[-1]), lambda free: (*place, free) in self._taken, "_"))
        self._taken.add(place)
        return place

    def _renamed(self, entry: Entry, name: str) -> Parts:
        """The same beside where a file was, with a note if it is called otherwise."""
        place = self._place((*entry.parts[:-1], name))
        if place[-1] != entry.parts[-1]:
            self.notes.append(f"{entry.shown} was renamed to {place[-1]}")
        return place

    def _write(self, place: Parts, data: bytes) -> None:
        path = self.into.joinpath(*place)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as stream:
                stream.write(data)
        except (FileExistsError, NotADirectoryError):
            raise Left("has the name of another file or folder") from None


def _python_text(data: bytes) -> tuple[str, str]:
    """Python source as text with ``\\n`` at line ends, that may be written in UTF-8, and what was changed.

    The declared encoding counts, then UTF-8, then Latin-1.

    Raises Left for NUL bytes.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text, change = data.decode("utf-16", "replace"), "was read as UTF-16; save it as UTF-8"
    else:
        text, change = _decoded(data)
    if "\0" in text:
        raise Left("holds NUL bytes, which no Python file may")
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, line in enumerate(lines[:2]):
        lines[number] = re.sub(r"^([ \t\f]*#.*?coding[:=][ \t]*)[-\w.]+", r"\1utf-8", line)
    return "\n".join(lines), change


def _decoded(data: bytes) -> tuple[str, str]:
    declared = ""
    try:
        declared = tokenize.detect_encoding(BytesIO(data).readline)[0]
        if codecs.lookup(declared).name not in UNSAFE_CODECS:
            return data.decode(declared), ""
    except (LookupError, SyntaxError, ValueError):
        pass
    try:
        return data.decode("utf-8"), "declares an encoding that it does not have; it was read as UTF-8"
    except UnicodeDecodeError:
        return data.decode("latin-1"), "is not in UTF-8; it was read as Latin-1"


# what to open


def home_of(name: str, entries: Iterable[Entry]) -> Parts:
    """The folder in which everything goes: one of its own if it is a package, which must have a name."""
    return (_identifier(name),) if any(entry.parts == ("__init__.py",) for entry in entries) else ()


def target_of(copy: Copy) -> Path:
    """What a worker shall open; adds ``__init__.py`` where Python files lie in several folders alone."""
    if len(copy.python) == 1 and not copy.cells and copy.python[0][-1] != "__init__.py":
        return copy.into.joinpath(*copy.python[0])
    seen = [place for place in copy.python if _is_imported(place)] or copy.python
    top = seen[0][:-1]
    while any(place[: len(top)] != top for place in seen):
        top = top[:-1]
    if not any(place[:-1] == top for place in seen):
        for above in sorted({place[:-1] for place in seen}):
            marker = copy.into.joinpath(*above, "__init__.py")
            if not marker.exists():
                marker.touch()
                copy.notes.append(f"{shown_text('/'.join(above))} was taken as a package")
    folder = copy.into.joinpath(*top)
    if top and (folder / "__init__.py").exists() and not top[-1].isidentifier():
        named = folder.with_name(_identifier(top[-1]))
        if not named.exists():
            copy.notes.append(f"the package {shown_text(top[-1])} was renamed to {named.name}")
            folder = folder.rename(named)
    return folder


def _is_imported(place: Parts) -> bool:
    """Whether a folder is imported with this file, or without it (tests and the like)."""
    if any(fnmatch.fnmatch(place[-1], pattern) for pattern in SKIPPED_FILES):
        return False
    return not any(part.startswith("_") and part != "__init__.py" for part in place)


# names


def shown_text(text: object) -> str:
    """Text of a submission on one line of a message, cut short."""
    return _plain(str(text))[:MAX_NAME]


def _plain(text: str) -> str:
    return "".join(
        "_" if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") else c for c in text
    )


def safe_name(name: str) -> str:
    """A file's name without what steers a terminal or leads elsewhere, not too long; its suffix stays."""
    name = _plain(name).replace("/", "_").replace("\\", "_")
    if len(name.encode()) <= MAX_NAME:
        return name
    suffix = Path(name).suffix if Path(name).suffix.lower() in SUFFIXES else ""
    return name.encode()[: MAX_NAME - 10].decode("utf-8", "ignore") + suffix


def unused_name(name: str, is_taken: Callable[[str], bool], mark: str) -> str:
    """A name that is free, made so with a number."""
    stem, dot, suffix = name.rpartition(".") if mark == "_" else (name, "", "")
    number, free = 1, name
    while is_taken(free):
        number += 1
        free = f"{stem}{mark}{number}{dot}{suffix}"
    return free


def _identifier(name: str) -> str:
    name = re.sub(r"\W", "_", name)
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"package_{name}"


def _module_name(stem: str) -> str:
    """The name of a notebook's module: one that is imported and hides no library."""
    name = re.sub(r"\W", "_", safe_name(stem))
    hides = name in sys.stdlib_module_names or name in LIBRARIES or keyword.iskeyword(name)
    if hides or not name.isidentifier() or not _is_imported((f"{name}.py",)):
        return f"notebook_{name}_"
    return name

"""From what students hand in to a folder of Python files that a worker can import.

A submission is a Python file, a notebook, a zip or a folder of these.  Nothing of it is run here, and nothing that
it says of itself (sizes, names, links, encodings) is believed.
"""

from __future__ import annotations

import codecs
import fnmatch
import hashlib
import keyword
import os
import re
import stat
import sys
import tokenize
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO, Literal

from ..candidates.errors import TargetError, TriuError
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
class Submission:
    """One thing that was handed in.

    Attributes:
        name: as the file (without its suffix) or folder is called, unique (upper and lower case are one);
            control characters are replaced.
        path: where it lies.
        digest: SHA-256 over what it contains, to tell whether it changed.
    """

    name: str
    path: Path
    digest: str


@dataclass(frozen=True)
class Cells:
    """Which lines of a file came from which cells: number, first and last line of each."""

    notebook: str
    ranges: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Prepared:
    """A submission as a worker can open it.

    Attributes:
        folder: all that was kept.
        target: what to open: the file if it is the only one in Python, otherwise the folder with the Python files.
        notes: for the student: what was left out or changed.
        cells: for each file that came from a notebook, by the name that errors show.
    """

    folder: Path
    target: Path
    notes: tuple[str, ...] = ()
    cells: Mapping[str, Cells] = field(default_factory=dict)

    def place(self, file: str, line: int) -> str:
        """A place in a file as its author knows it: ``hw2.ipynb, cell 3, line 2`` or ``hw2.py, line 7``."""
        name = Path(file).name
        if name in self.cells:
            for number, first, last in self.cells[name].ranges:
                if first <= line <= last:
                    return f"{self.cells[name].notebook}, cell {number}, line {line - first + 1}"
        return f"{name}, line {line}"

    def told(self, text: str) -> str:
        """A message with the places in it as their author knows them."""
        for name in self.cells:
            place = rf"{re.escape(name)}, line (\d{{1,9}})"
            text = re.sub(place, lambda found, name=name: self.place(name, int(found[1])), text)
        return text


@dataclass(frozen=True)
class _Entry:
    """A file within a submission; ``packed`` is its size in a zip."""

    parts: Parts
    size: int
    open: Callable[[], IO[bytes]]
    packed: int | None = None

    @property
    def shown(self) -> str:
        return _shown("/".join(self.parts))

    @property
    def suffix(self) -> str:
        return Path(self.parts[-1]).suffix.lower()


class _Left(Exception):
    """A file is left out; the message completes ``NAME was left out: it …``."""


def find_submissions(folder: Path) -> tuple[list[Submission], list[str]]:
    """Find what was handed in: every Python file, notebook, zip and folder directly in ``folder``.

    Returns:
        The submissions, sorted by name, and the names of everything else.

    Raises:
        TargetError: there is no such folder, or it cannot be read.
    """
    try:
        children = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError as error:
        raise TargetError(
            f"{folder}: cannot be read ({error.strerror}); expected a folder with submissions"
        ) from None
    found: list[Submission] = []
    ignored: list[str] = []
    names: set[str] = set()
    for path in children:
        name = _name(path)
        if not name or _is_junk(path.name):
            ignored.append(_safe(path.name))
            continue
        name = _unused(name, lambda free: free.casefold() in names, "-")
        names.add(name.casefold())
        found.append(Submission(name, path, _digest(path)))
    return sorted(found, key=lambda submission: submission.name), ignored


def as_submission(path: Path) -> Submission:
    """One Python file, notebook, zip or folder as a submission.

    Raises:
        TargetError: there is nothing of that name, or it is something else.
    """
    path = Path(os.path.abspath(path))
    name = _name(path)
    if not name:
        what = "is not one" if os.path.lexists(path) else "there is no such file or folder"
        raise TargetError(f"{path}: {what}; a submission is a folder or a .py, .ipynb or .zip file")
    return Submission(name, path, _digest(path))


def prepare(submission: Submission, into: Path) -> Prepared:
    """Copy a submission into an empty folder, as plain Python files in UTF-8.

    Links are never followed.  What a submission need not have is left out and noted: hidden and compiled files,
    virtual environments, files that are too large or too deep.  Notebooks become modules.

    Raises:
        SubmissionError: it holds no Python (``empty``), or cannot be read (``unreadable``).
        ValueError: ``into`` is not an empty folder.
    """
    into.mkdir(parents=True, exist_ok=True)
    if any(into.iterdir()):
        raise ValueError(f"{into}: is not empty; a submission is prepared in an empty folder")
    notes: list[str] = []
    with ExitStack() as stack:
        entries = _entries(submission.path, notes, stack)
        copy = _Copy(into, _home(submission.name, entries), notes)
        copy.take(entries)
    copy.check([entry.shown for entry in entries])
    target = _target(copy)
    more = len(notes) - MAX_NOTES
    shown = (*notes[:MAX_NOTES], f"and {more} more like these") if more > 0 else tuple(notes)
    return Prepared(into, target, shown, copy.cells)


# what there is


def _entries(path: Path, notes: list[str], stack: ExitStack) -> list[_Entry]:
    """All files of a submission that may be of use, each place once."""
    if path.is_symlink() or not path.exists():
        raise SubmissionError("unreadable", f"{_shown(path.name)}: there is no such file or folder")
    if path.is_file():
        if path.suffix.lower() == ".zip":
            entries = _zipped(path, (), notes, stack)
        else:
            entries = [_Entry((path.name,), path.stat().st_size, lambda: path.open("rb"))]
    else:
        entries = []
        unreadable: list[SubmissionError] = []
        for parts, file in _walk(path, notes):
            if file.suffix.lower() == ".zip":
                try:
                    inside = _zipped(file, parts[:-1], notes, stack)
                except SubmissionError as error:
                    notes.append(str(error))
                    unreadable.append(error)
                    continue
                entries = inside + entries  # what lies beside a zip counts more than what is in it
            else:
                entries.append(_Entry(parts, file.lstat().st_size, lambda file=file: file.open("rb")))
        if unreadable and not any(entry.suffix in (".py", ".ipynb") for entry in entries):
            raise unreadable[0]
    last = {entry.parts: entry for entry in entries}
    if len(last) < len(entries):
        notes.append("several files have the same name; the last of each was taken")
    return list(last.values())


def _walk(folder: Path, notes: list[str]) -> Iterator[tuple[Parts, Path]]:
    """Every file in a folder in order, with its place; raises SubmissionError where there is no end of them."""
    waiting: list[Parts] = [()]
    seen = 0
    while waiting:
        above = waiting.pop()
        try:
            with os.scandir(folder.joinpath(*above)) as listing:
                found = sorted(listing, key=lambda item: item.name)
        except OSError as error:
            notes.append(f"{_shown('/'.join(above) or folder.name)} cannot be read: {error.strerror}")
            continue
        if above and any(item.name == "pyvenv.cfg" for item in found):
            notes.append(f"{_shown('/'.join(above))} was left out: it is a virtual environment")
            continue
        below: list[Parts] = []
        for item in found:
            seen += 1
            if seen > MAX_ENTRIES:
                raise SubmissionError("unreadable", f"the folder holds more than {MAX_ENTRIES} files")
            parts = (*above, item.name)
            if _is_junk(item.name):
                continue
            if item.is_symlink():
                notes.append(f"{_shown('/'.join(parts))} was left out: it is a link; hand in the file itself")
            elif item.is_dir(follow_symlinks=False):
                below.append(parts)
            elif not item.is_file(follow_symlinks=False):
                notes.append(f"{_shown('/'.join(parts))} was left out: it is not a file")
            else:
                yield parts, Path(item.path)
        if below and len(above) + 1 >= MAX_DEPTH:
            notes.append(f"{_shown('/'.join(above))} has folders deeper than {MAX_DEPTH}: they were left out")
        else:
            waiting += reversed(below)


def _zipped(path: Path, above: Parts, notes: list[str], stack: ExitStack) -> list[_Entry]:
    """The files in a zip; raises SubmissionError where it is damaged, encrypted or unsafe as a whole."""
    shown = _shown(path.name)
    try:
        archive = stack.enter_context(zipfile.ZipFile(path))
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise SubmissionError(
            "unreadable", f"{shown}: is not a zip that can be read ({_shown(error)}); pack it again"
        ) from None
    infos = archive.infolist()
    if len(infos) > MAX_ENTRIES:
        raise SubmissionError("unreadable", f"{shown}: holds more than {MAX_ENTRIES} files")
    found: list[_Entry] = []
    for info in infos:
        name = info.filename.replace("\\", "/")
        parts = tuple(part.strip() for part in name.split("/") if part.strip() not in ("", "."))
        if name.startswith("/") or re.match(r"[A-Za-z]:", name) or ".." in parts:
            raise SubmissionError(
                "unreadable", f"{shown}: holds a path that leads out of it ({_shown(name)}); pack it again"
            )
        if name.endswith("/") or not parts or any(map(_is_junk, parts)):
            continue
        entry = _Entry(
            parts, info.file_size, lambda info=info: archive.open(info), max(info.compress_size, 1)
        )
        if info.flag_bits & 1:
            raise SubmissionError("unreadable", f"{shown}: is encrypted; hand it in without a password")
        if stat.S_ISLNK(info.external_attr >> 16):
            notes.append(f"{entry.shown} was left out: it is a link; hand in the file itself")
        elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            notes.append(f"{entry.shown} was left out: it is packed in a way that is not read; use deflate")
        elif len(parts) > MAX_DEPTH:
            notes.append(f"{entry.shown} was left out: it lies deeper than {MAX_DEPTH} folders")
        else:
            found.append(entry)
    environments = {entry.parts[:-1] for entry in found if entry.parts[-1] == "pyvenv.cfg"} - {()}
    for environment in environments:
        notes.append(f"{_shown('/'.join(environment))} was left out: it is a virtual environment")
        found = [entry for entry in found if entry.parts[: len(environment)] != environment]
    tops = {entry.parts[0] for entry in found}
    only = len(tops) == 1 and all(len(entry.parts) > 1 for entry in found)
    package = any(entry.parts[1:] == ("__init__.py",) for entry in found)
    inside = 1 if only and not package else 0
    return [_Entry((*above, *entry.parts[inside:]), entry.size, entry.open, entry.packed) for entry in found]


def _name(path: Path) -> str:
    """What a submission is called; empty for what is none."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return ""
    if stat.S_ISREG(mode) and path.suffix.lower() in SUFFIXES:
        return _safe(path.stem)
    return _safe(path.name) if stat.S_ISDIR(mode) else ""


def _is_junk(name: str) -> bool:
    return name.startswith(".") or name in JUNK


def _digest(path: Path) -> str:
    """SHA-256 over names and contents; of what is too large to be taken, over its size and time."""
    total = hashlib.sha256()

    def add(name: str, file: Path, limit: int) -> None:
        total.update(f"{len(os.fsencode(name))}:".encode() + os.fsencode(name))
        try:
            about = file.lstat()
            if about.st_size > limit:
                total.update(f"large {about.st_size} {about.st_mtime_ns}".encode())
                return
            with file.open("rb") as stream:
                total.update(hashlib.file_digest(stream, "sha256").digest())
        except OSError as error:
            total.update(f"unreadable {error.errno}".encode())

    if path.is_dir():
        try:
            for parts, file in _walk(path, []):
                add("/".join(parts), file, MAX_TOTAL if file.suffix.lower() == ".zip" else MAX_FILE)
        except SubmissionError as error:
            total.update(error.message.encode())
    else:
        add(path.suffix, path, MAX_TOTAL)
    return total.hexdigest()


# copying


class _Copy:
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

    def take(self, entries: Iterable[_Entry]) -> None:
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
            except _Left as error:
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

    def _take(self, entry: _Entry) -> None:
        if entry.suffix in COMPILED:
            raise _Left("is compiled; hand in its source")
        if entry.suffix == ".zip":
            raise _Left("is a zip within a zip; unpack it first")
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

    def _content(self, entry: _Entry) -> bytes:
        """What is really in a file."""
        content = BytesIO()
        try:
            if entry.size <= MAX_FILE:
                with entry.open() as stream:
                    while content.tell() <= MAX_FILE and (piece := stream.read(1 << 16)):
                        content.write(piece)
                        self._read += len(piece)
        except (OSError, EOFError, ValueError, NotImplementedError, RuntimeError, zlib.error) as error:
            raise _Left(f"cannot be read ({_shown(error)})") from None
        except zipfile.BadZipFile as error:
            raise _Left(f"is damaged ({_shown(error)})") from None
        size = max(entry.size, content.tell())
        if size <= MAX_FILE:
            return content.getvalue()
        if entry.packed and size > MAX_RATIO * entry.packed:
            raise SubmissionError(
                "unreadable",
                f"{entry.shown}: becomes more than {MAX_FILE >> 20} MB when it is unpacked (a zip bomb)",
            )
        raise _Left(f"is larger than {MAX_FILE >> 20} MB")

    def _python(self, entry: _Entry, text: str) -> None:
        stem = entry.parts[-1][: -len(".py")].replace(".", "_")
        place = self._renamed(entry, f"{stem}.py")
        self._write(place, text.encode("utf-8", "backslashreplace"))
        self.python.append(place)
        self._any_code |= bool(text.strip())

    def _notebook(self, entry: _Entry, data: bytes) -> None:
        """Write the module, the file with the cells, and the files that cells write."""
        try:
            notebook = read_notebook(data.decode("utf-8-sig", "replace"))
        except ValueError as error:
            raise _Left(f"is {_shown(error)}") from None
        above = entry.parts[:-1]
        place = self._place((*above, f"{_module_name(Path(entry.parts[-1]).stem)}.py"))
        source = self._place((*above, "_cells", f"{place[-1][:-3]}.ipynb.py"))
        while source[-1] in self.cells:
            source = self._place(source[len(self._home) :])
        self._write(place, notebook.module("/".join(source[len(place) - 1 :])).encode())
        self._write(source, notebook.text.encode("utf-8", "backslashreplace"))
        self.python.append(place)
        self.cells[source[-1]] = Cells(_shown(entry.parts[-1]), notebook.ranges)
        self.notes += [f"{entry.shown}, {_shown(note)}" for note in notebook.notes]
        self._any_code |= bool(notebook.ranges)
        for name, text in notebook.written.items():
            if (*self._home, *above, name) in self._taken:
                self.notes.append(
                    f"{entry.shown}: {name} was handed in as well; the file counts, not the cell"
                )
            else:
                written = _Entry((*above, name), len(text), BytesIO)
                self._python(written, _python_text(text.encode("utf-8", "backslashreplace"))[0])

    def _place(self, parts: Parts) -> Parts:
        """A place that is free, with safe names."""
        above = tuple(_safe(part) for part in parts[:-1])
        place = (*self._home, *above)
        place = (*place, _unused(_safe(parts[-1]), lambda free: (*place, free) in self._taken, "_"))
        self._taken.add(place)
        return place

    def _renamed(self, entry: _Entry, name: str) -> Parts:
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
            raise _Left("has the name of another file or folder") from None


def _python_text(data: bytes) -> tuple[str, str]:
    """Python source as text with ``\\n`` at line ends, that may be written in UTF-8, and what was changed.

    The declared encoding counts, then UTF-8, then Latin-1.

    Raises _Left for NUL bytes.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text, change = data.decode("utf-16", "replace"), "was read as UTF-16; save it as UTF-8"
    else:
        text, change = _decoded(data)
    if "\0" in text:
        raise _Left("holds NUL bytes, which no Python file may")
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


def _home(name: str, entries: Iterable[_Entry]) -> Parts:
    """The folder in which everything goes: one of its own if it is a package, which must have a name."""
    return (_identifier(name),) if any(entry.parts == ("__init__.py",) for entry in entries) else ()


def _target(copy: _Copy) -> Path:
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
                copy.notes.append(f"{_shown('/'.join(above))} was taken as a package")
    folder = copy.into.joinpath(*top)
    if top and (folder / "__init__.py").exists() and not top[-1].isidentifier():
        named = folder.with_name(_identifier(top[-1]))
        if not named.exists():
            copy.notes.append(f"the package {_shown(top[-1])} was renamed to {named.name}")
            folder = folder.rename(named)
    return folder


def _is_imported(place: Parts) -> bool:
    """Whether a folder is imported with this file, or without it (tests and the like)."""
    if any(fnmatch.fnmatch(place[-1], pattern) for pattern in SKIPPED_FILES):
        return False
    return not any(part.startswith("_") and part != "__init__.py" for part in place)


# names


def _shown(text: object) -> str:
    """Text of a submission on one line of a message, cut short."""
    return _plain(str(text))[:MAX_NAME]


def _plain(text: str) -> str:
    return "".join(
        "_" if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") else c for c in text
    )


def _safe(name: str) -> str:
    """A file's name without what steers a terminal or leads elsewhere, not too long; its suffix stays."""
    name = _plain(name).replace("/", "_").replace("\\", "_")
    if len(name.encode()) <= MAX_NAME:
        return name
    suffix = Path(name).suffix if Path(name).suffix.lower() in SUFFIXES else ""
    return name.encode()[: MAX_NAME - 10].decode("utf-8", "ignore") + suffix


def _unused(name: str, is_taken: Callable[[str], bool], mark: str) -> str:
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
    name = re.sub(r"\W", "_", _safe(stem))
    hides = name in sys.stdlib_module_names or name in LIBRARIES or keyword.iskeyword(name)
    if hides or not name.isidentifier() or not _is_imported((f"{name}.py",)):
        return f"notebook_{name}_"
    return name

"""From what students hand in to a folder of Python files that a worker can import.

A submission is a Python file, a notebook, a zip or a folder of these.  Nothing of it is run here, and nothing that
it says of itself (sizes, names, links, encodings) is believed.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ..candidates.errors import TargetError
from .clean_copy import (
    JUNK,
    MAX_DEPTH,
    MAX_ENTRIES,
    MAX_FILE,
    MAX_NOTES,
    MAX_TOTAL,
    SUFFIXES,
    Cells,
    Copy,
    Entry,
    Parts,
    SubmissionError,
    home_of,
    safe_name,
    shown_text,
    target_of,
    unused_name,
)


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
            ignored.append(safe_name(path.name))
            continue
        name = unused_name(name, lambda free: free.casefold() in names, "-")
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
        copy = Copy(into, home_of(submission.name, entries), notes)
        copy.take(entries)
    copy.check([entry.shown for entry in entries])
    target = target_of(copy)
    more = len(notes) - MAX_NOTES
    shown = (*notes[:MAX_NOTES], f"and {more} more like these") if more > 0 else tuple(notes)
    return Prepared(into, target, shown, copy.cells)


# what there is


def _entries(path: Path, notes: list[str], stack: ExitStack) -> list[Entry]:
    """All files of a submission that may be of use, each place once."""
    if path.is_symlink() or not path.exists():
        raise SubmissionError("unreadable", f"{shown_text(path.name)}: there is no such file or folder")
    if path.is_file():
        if path.suffix.lower() == ".zip":
            entries = _zipped(path, (), notes, stack)
        else:
            entries = [Entry((path.name,), path.stat().st_size, lambda: path.open("rb"))]
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
                entries.append(Entry(parts, file.lstat().st_size, lambda file=file: file.open("rb")))
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
            notes.append(f"{shown_text('/'.join(above) or folder.name)} cannot be read: {error.strerror}")
            continue
        if above and any(item.name == "pyvenv.cfg" for item in found):
            notes.append(f"{shown_text('/'.join(above))} was left out: it is a virtual environment")
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
                notes.append(
                    f"{shown_text('/'.join(parts))} was left out: it is a link; hand in the file itself"
                )
            elif item.is_dir(follow_symlinks=False):
                below.append(parts)
            elif not item.is_file(follow_symlinks=False):
                notes.append(f"{shown_text('/'.join(parts))} was left out: it is not a file")
            else:
                yield parts, Path(item.path)
        if below and len(above) + 1 >= MAX_DEPTH:
            notes.append(
                f"{shown_text('/'.join(above))} has folders deeper than {MAX_DEPTH}: they were left out"
            )
        else:
            waiting += reversed(below)


def _zipped(path: Path, above: Parts, notes: list[str], stack: ExitStack) -> list[Entry]:
    """The files in a zip; raises SubmissionError where it is damaged, encrypted or unsafe as a whole."""
    shown = shown_text(path.name)
    try:
        archive = stack.enter_context(zipfile.ZipFile(path))
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise SubmissionError(
            "unreadable", f"{shown}: is not a zip that can be read ({shown_text(error)}); pack it again"
        ) from None
    infos = archive.infolist()
    if len(infos) > MAX_ENTRIES:
        raise SubmissionError("unreadable", f"{shown}: holds more than {MAX_ENTRIES} files")
    found: list[Entry] = []
    for info in infos:
        name = info.filename.replace("\\", "/")
        parts = tuple(part.strip() for part in name.split("/") if part.strip() not in ("", "."))
        if name.startswith("/") or re.match(r"[A-Za-z]:", name) or ".." in parts:
            raise SubmissionError(
                "unreadable",
                f"{shown}: holds a path that leads out of it ({shown_text(name)}); pack it again",
            )
        if name.endswith("/") or not parts or any(map(_is_junk, parts)):
            continue
        entry = Entry(parts, info.file_size, lambda info=info: archive.open(info), max(info.compress_size, 1))
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
        notes.append(f"{shown_text('/'.join(environment))} was left out: it is a virtual environment")
        found = [entry for entry in found if entry.parts[: len(environment)] != environment]
    tops = {entry.parts[0] for entry in found}
    only = len(tops) == 1 and all(len(entry.parts) > 1 for entry in found)
    package = any(entry.parts[1:] == ("__init__.py",) for entry in found)
    inside = 1 if only and not package else 0
    return [Entry((*above, *entry.parts[inside:]), entry.size, entry.open, entry.packed) for entry in found]


def _name(path: Path) -> str:
    """What a submission is called; empty for what is none."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return ""
    if stat.S_ISREG(mode) and path.suffix.lower() in SUFFIXES:
        return safe_name(path.stem)
    return safe_name(path.name) if stat.S_ISDIR(mode) else ""


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

"""Writes files whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: str | Path, text: str) -> None:
    """Write a regular file by way of a temporary one beside it, so that nobody ever sees half of it.

    A link is followed; text that no encoding admits (lone surrogates) is written as escapes.
    Raises OSError where the folder does not exist or is not writable.
    """
    path = Path(path).resolve()
    if path.exists() and not path.is_file():  # a device or a pipe is written to, never replaced
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        return
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

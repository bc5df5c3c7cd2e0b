"""A progress bar for what takes more than a second, on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, Self

import click

AFTER = 1.0


class Progress:
    """Counts steps; shows nothing for a second, nothing where nobody looks, and leaves no trace."""

    def __init__(self, total: int, label: str, *, quiet: bool = False) -> None:
        self._total, self._label = total, label
        self._visible = not quiet and sys.stderr.isatty()
        self._began = time.monotonic()
        self._count = 0
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def step(self) -> None:
        """One more is done."""
        self._count += 1
        if not self._visible:
            return
        if self._bar is None and time.monotonic() - self._began > AFTER:
            self._bar = click.progressbar(
                length=self._total,
                label=self._label,
                show_eta=True,
                show_pos=True,
                file=sys.stderr,
                width=0,
            )
            self._bar.__enter__()
            self._bar.update(self._count)
        elif self._bar is not None:
            self._bar.update(1)

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            sys.stderr.write("\x1b[A\r\x1b[K")
            sys.stderr.flush()

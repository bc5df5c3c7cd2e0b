"""Every way in which a candidate can disappoint, in the order of its life, each with its own name.

A target is located (:class:`TargetError`), opened by a worker (:class:`OpenError`), its objects are bound
and called (:class:`CandidateError` for what its own code raises).  The worker itself can stop
(:class:`WorkerLost`), run out of time (:class:`CallTimeout`) or talk nonsense (:class:`ProtocolError`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any


class TriuError(Exception):
    """Base of all errors that triu raises on purpose; the message is meant for a person."""


class TargetError(TriuError):
    """The target cannot be found or read; the request is unusable (exit status 2)."""


class OpenError(TriuError):
    """The target was found but importing it failed; it is unusable (exit status 2).

    ``kind`` is that of the failed call, ``exception`` where its code raised.
    """

    def __init__(self, message: str, kind: str = "exception") -> None:
        super().__init__(message)
        self.kind = kind


class ConventionError(TriuError):
    """A conventions file is wrong; the message names file, key, what was found and what is known."""


class CallFailed(TriuError):
    """A call into the candidate did not return a value.  ``kind`` is one word for the cause."""

    kind = "failed"

    def __init__(self, message: str, detail: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.detail = dict(detail or {})

    @property
    def refuses(self) -> bool:
        """Whether the candidate says no to a value, as code does on purpose."""
        return self.kind == "exception" and self.detail.get("type") in ("ValueError", "AssertionError")

    @property
    def is_slip(self) -> bool:
        """Whether the code is at fault whatever it is given: a name that nobody defined, a method misspelled."""
        kind, message = self.detail.get("type"), str(self)
        if self.kind != "exception" or kind in ("NameError", "UnboundLocalError"):
            return self.kind == "exception"
        if kind == "AttributeError" and (found := MISSING.search(message)):
            return bool(found[1] or get_close_matches(found[2], METHODS, 1, 0.85))
        return kind == "TypeError" and MISUSED.search(message) is not None


MISSING = re.compile(r"(module )?'[\w.]+'(?: object)? has no attribute '(\w+)'")
MISUSED = re.compile(r"invalid combination of arguments|unexpected keyword argument|takes \d+ positional")
METHODS = (
    "masked_fill", "masked_fill_", "unsqueeze", "unsqueeze_", "squeeze", "expand", "expand_as", "logical_not",
    "transpose", "float", "bool", "astype", "reshape", "repeat", "softmax", "permute", "device", "dtype", "shape",
    "size", "view",
)  # fmt: skip


class CandidateError(CallFailed):
    """The candidate raised; ``detail`` has type, message, and file, line and code within the candidate."""

    kind = "exception"


class CallTimeout(CallFailed):
    """The candidate did not answer in time; its worker was stopped."""

    kind = "time-out"


class WorkerLost(CallFailed):
    """The worker stopped.  ``kind`` is ``exit`` (with a status), ``crash`` (by a signal of its own), ``memory``
    or ``killed`` (from outside)."""

    def __init__(self, message: str, kind: str = "exit") -> None:
        super().__init__(message)
        self.kind = kind


class ProtocolError(CallFailed):
    """The worker answered something that is not a frame of the protocol, or more than is allowed."""

    kind = "protocol"


# After these the worker is gone, and each may take as long again.
FATAL = ("time-out", "exit", "crash", "memory", "killed", "protocol")

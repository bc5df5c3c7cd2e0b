"""Judges a candidate by a spec.  ``from triu.conformance import check; report = check(MyDecoderBlock)``."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import check

__all__ = ["check"]


def __getattr__(name: str) -> Any:
    if name == "check":  # imported on use: `triu --help` needs neither torch nor Hypothesis
        from .api import check

        return check
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

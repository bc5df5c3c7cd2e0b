"""``python -m triu.conformance`` is the command ``triu``."""

from .cli import run

run()

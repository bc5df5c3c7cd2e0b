"""Is not Python."""

this is not ( Python

"""Has terminal escapes and HTML in its names and words."""

import torch


class Evil(Exception):
    pass


Evil.__name__ = Evil.__qualname__ = "\x1b[2J<script>alert(1)</script>"


def build_causal_mask(T):
    """\x1b]0;title\x07 <img src=x onerror=alert(1)> True = blocked."""
    print("\x1b[31mred\x1b[0m </pre><script>alert(2)</script> \u202e")
    raise Evil("\x1b[1A\x1b[2K PASSED <script>alert(3)</script> ![x](javascript:alert(4)) =cmd|' /C calc'!A0")

"""Text of unknown origin, made safe to print: names in a stranger's files must not control the terminal."""

from __future__ import annotations

import unicodedata

LINES = ("\n", "\t")


def printable(text: str) -> str:
    """The same text with control characters (colours, cursor movements, reversed writing) as visible escapes."""
    return "".join(c if c in LINES or not _is_control(c) else ascii(c)[1:-1] for c in text)


def in_one_line(text: str) -> str:
    """The same, with line breaks as spaces, so that a name cannot pass for a line of ours."""
    return printable(" ".join(text.split()))


def _is_control(sign: str) -> bool:
    """Control characters, marks that change the direction of writing, and lone surrogates, which cannot be encoded."""
    return unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp")

"""Make untrusted text safe for terminals and logs.

In the result no character ends a line, changes colours or reverses the direction of text.
"""

from __future__ import annotations


def escaped(text: str) -> str:
    r"""Escape characters that do not print as Python does: ``\n``, ``\x1b``."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def blanked(text: str) -> str:
    """Replace characters that do not print with spaces."""
    return "".join(character if character.isprintable() else " " for character in text)

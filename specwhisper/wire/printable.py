"""Text of others on terminals and in logs: nothing in it ends a line, colours it or turns it round."""

from __future__ import annotations


def escaped(text: str) -> str:
    r"""Write what does not print as Python does: ``\n``, ``\x1b``, ``\u2028``."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def blanked(text: str) -> str:
    """Put a space for whatever does not print."""
    return "".join(character if character.isprintable() else " " for character in text)

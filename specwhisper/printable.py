"""Make untrusted text safe for terminals, files and logs.

In the result no character ends a line, changes colours or reverses the direction of text.
"""

from __future__ import annotations

import re
from typing import Any

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # surrogates cannot be written
DIRECTION = re.compile(r"[\u202a-\u202e\u2066-\u2069]")  # marks, and joiners of Persian and emoji, are text
UNSAFE_IN_JSON = re.compile(r"[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(text: str) -> str:
    r"""Escape characters that do not print as Python does: ``\n``, ``\x1b``."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def blanked(text: str) -> str:
    """Blank control characters, and leave out changes of direction."""
    return DIRECTION.sub("", CONTROL.sub(" ", text))


def print_table(console: Any, *tables: Any) -> None:
    """Print tables of rich without the spaces that fill their lines."""
    with console.capture() as printed:
        console.print(*tables, highlight=False)
    lines = printed.get().split("\n")
    print(*(line.rstrip(" ") for line in lines), sep="\n", end="", file=console.file, flush=True)


def escaped_json(document: str) -> str:
    """Escape in JSON what its writer leaves as it is: its value stays the same."""
    return UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", document)

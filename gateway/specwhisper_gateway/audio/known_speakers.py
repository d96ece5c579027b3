"""Samples of known speakers, as OpenAI's clients send them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from specwhisper_gateway.errors import InvalidField

MAX_SPEAKERS = 4  # OpenAI's limit
NAMES, REFERENCES = "known_speaker_names", "known_speaker_references"


def samples_by_name(names: Sequence[str], references: Sequence[str]) -> dict[str, bytes]:
    """Return the sample of each name, as a file in memory.

    Parameters
    ----------
    references : a data URL with base64 for each name.

    Raises
    ------
    InvalidField : if they do not match, or one is not a data URL.
    """
    if len(names) != len(references):
        raise _invalid(
            NAMES if len(names) > len(references) else REFERENCES,
            f"there are {len(names)} names and {len(references)} references; send a reference for each name.",
        )
    if len(names) > MAX_SPEAKERS:
        raise _invalid(NAMES, f"there are {len(names)}; send at most {MAX_SPEAKERS}.")
    if len(set(names)) < len(names) or not all(map(str.strip, names)):
        raise _invalid(NAMES, "each speaker needs a name of its own, which is not empty.")
    return {name: _file_in(reference, name) for name, reference in zip(names, references, strict=True)}


def _file_in(reference: str, name: str) -> bytes:
    head, _, data = reference.partition(",")
    if not (head.startswith("data:") and head.endswith(";base64")):
        raise _invalid(REFERENCES, f"the one for {name!r} is not a data URL; send data:audio/wav;base64,....")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise _invalid(REFERENCES, f"the one for {name!r} is not base64.") from None


def _invalid(field: str, reason: str) -> InvalidField:
    return InvalidField(f"{field} cannot be used: {reason}", field, "invalid_value")

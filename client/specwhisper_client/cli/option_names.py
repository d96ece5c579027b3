"""Name options in errors as the command line names them."""

from __future__ import annotations

import re
from dataclasses import fields

from specwhisper.errors import InvalidRequest, SpecWhisperError
from specwhisper.options import OTHER_NAMES, DecodingOptions, VadOptions

NO_FLAGS = ("live", "log_mel_max", "realigns")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


NAMES = (
    {field.name: _flag(field.name) for field in fields(DecodingOptions) if field.name not in NO_FLAGS}
    | {name: _flag(other) for other, name in OTHER_NAMES.items()}
    | {name: _flag(name) for name in ("temperature", "temperature_increment_on_fallback")}
    | {field.name: _flag(f"vad_{field.name}") for field in fields(VadOptions)}
    | {"timestamps": "--timestamps", "vad_parameters": "--vad-threshold and the like"}
)


def described(error: SpecWhisperError) -> str:
    """Return an error's text with the names of this command line.

    A name of one word, such as language, is a name only at the text's beginning.
    """
    text = str(error)
    if not isinstance(error, InvalidRequest):
        return text
    return re.sub(
        r"^[a-z]+(?= is )|\b[a-z]+(?:_[a-z]+)+\b", lambda found: NAMES.get(found[0], found[0]), text
    )

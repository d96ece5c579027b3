"""JSON messages on WebSockets, limited in size and number of values."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json

from specwhisper_client.updates import Update
from specwhisper_gateway.errors import InvalidField

MAX_MESSAGE_BYTES = 1024 * 1024  # larger messages close the connection
MAX_CONTROL_BYTES = 64 * 1024  # a message without its audio
MAX_SEPARATORS = 4_096  # commas and opening brackets: reading a value takes microseconds
NO_INTERIM = dict.fromkeys(("verified", "stable", "tentative"), "")


def new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:24]}"


def event(kind: str, **facts: Any) -> dict[str, Any]:
    return {"type": kind, "event_id": new_id("event")} | facts


def interim_of(update: Update) -> dict[str, str]:
    """Return the text of an update that may still change: the target's, then the draft's.

    ``stable`` is the part of the draft's that four hypotheses in a row have, ``tentative`` the rest.
    """
    return {
        "verified": update.verified_text,
        "stable": update.stable_text,
        "tentative": update.tentative_text,
    }


def warning_event(ignored: Sequence[InvalidField], event_id: str | None = None) -> dict[str, Any]:
    """Return an event about ignored parts of a client's; it is not OpenAI's."""
    message = " ".join(map(str, ignored))
    details = {"code": ignored[0].code, "param": ignored[0].param, "message": message}
    return event("warning", warning=details | {"event_id": event_id})


def read_object(frame: str, *, audio: str | None = None) -> dict[str, Any]:
    """Parse a message.

    Raises :class:`InvalidField` if it is invalid.

    Parameters
    ----------
    audio : key whose text does not count towards the size of a control message.
    """
    is_large = len(frame) > MAX_CONTROL_BYTES
    if (is_large and audio is None) or sum(map(frame.count, ",[{")) > MAX_SEPARATORS:
        raise _too_large()
    try:
        message = from_json(frame)  # unlike the standard library's parser, it refuses lone surrogates
    except ValueError as error:
        raise InvalidField("The message is not JSON.", code="invalid_json") from error
    if not isinstance(message, dict):
        raise InvalidField("The message must be a JSON object.")
    text = message.get(audio) if audio is not None else None
    if is_large and not (isinstance(text, str) and len(frame) - len(text) <= MAX_CONTROL_BYTES):
        raise _too_large()
    return message


def _too_large() -> InvalidField:
    return InvalidField(
        f"The message has over {MAX_CONTROL_BYTES} characters besides audio, or {MAX_SEPARATORS} values.",
        code="message_too_large",
    )

"""What a client says in a realtime session: OpenAI's events, read and checked."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from client.gateway.errors import InvalidEvent

MAX_AUDIO_BYTES = 15 * 1024 * 1024  # of one event; OpenAI's limit
BYTES_PER_SAMPLE = 2


@dataclass(frozen=True, slots=True)
class Update:
    """Change how the session transcribes; ``is_flat`` tells the shape that the beta had."""

    session: dict[str, Any]
    is_flat: bool = False


@dataclass(frozen=True, slots=True)
class Append:
    """Hear more audio."""

    pcm: bytes


@dataclass(frozen=True, slots=True)
class Commit:
    """What was heard is complete."""


@dataclass(frozen=True, slots=True)
class Clear:
    """Forget what was heard since the last commit."""


Command = Update | Append | Commit | Clear
KNOWN = (
    "session.update",
    "transcription_session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.commit",
    "input_audio_buffer.clear",
)


def event_id_of(frame: str | bytes) -> str | None:
    """Give the name that a client gave its event, for an answer to it."""
    try:
        given = from_json(frame).get("event_id")
    except (ValueError, AttributeError):
        return None
    return given if isinstance(given, str) else None


def read_command(frame: str | bytes) -> Command:
    """Read one event; :class:`InvalidEvent` says what is wrong with it."""
    if isinstance(frame, bytes):
        raise InvalidEvent(
            "Events are JSON in text messages, and this is a binary one: send audio in base64 with "
            "input_audio_buffer.append.",
            code="invalid_message",
        )
    try:
        event = from_json(frame)  # unlike the standard library's, it lets no half characters in
    except ValueError as error:
        raise InvalidEvent("The message is no JSON.", code="invalid_json") from error
    kind = event.get("type") if isinstance(event, dict) else None
    match kind:
        case "session.update" | "transcription_session.update":
            session = event.get("session")
            if not isinstance(session, dict):
                raise InvalidEvent(f"{kind} needs an object 'session'.", "session")
            return Update(session, is_flat=kind == "transcription_session.update")
        case "input_audio_buffer.append":
            return Append(_pcm(event.get("audio")))
        case "input_audio_buffer.commit":
            return Commit()
        case "input_audio_buffer.clear":
            return Clear()
    raise InvalidEvent(
        f"Invalid value: {str(kind)[:100]!r}. Supported events are: {', '.join(KNOWN)}.", "type"
    )


def _pcm(audio: Any) -> bytes:
    if not isinstance(audio, str):
        raise InvalidEvent("input_audio_buffer.append needs 'audio', 16-bit samples in base64.", "audio")
    if len(audio) * 3 // 4 > MAX_AUDIO_BYTES:
        raise InvalidEvent(
            f"audio has more than {MAX_AUDIO_BYTES} bytes: send it in smaller pieces.",
            "audio",
            "audio_too_large",
        )
    try:
        pcm = base64.b64decode(audio, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidEvent(
            "audio is no base64: encode the samples' bytes.", "audio", "invalid_base64"
        ) from error
    if len(pcm) % BYTES_PER_SAMPLE:
        raise InvalidEvent(f"audio has {len(pcm)} bytes: 16-bit samples have two each.", "audio")
    return pcm

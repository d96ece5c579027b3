"""Events of a realtime client, parsed and validated."""

from __future__ import annotations

import base64
from typing import Any

from specwhisper.errors import InvalidRequest
from specwhisper.transcription.hints import MAX_START_S, hint_at
from specwhisper.types import TimedHint
from specwhisper_gateway.errors import InvalidField
from specwhisper_gateway.messages import read_object

KNOWN = (
    "session.update",
    "transcription_session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.commit",
    "input_audio_buffer.clear",
    "input_audio_buffer.hint",
)


def event_id_of(event: dict[str, Any]) -> str | None:
    event_id = event.get("event_id")
    return event_id if isinstance(event_id, str) else None


def read_event(frame: str | bytes) -> dict[str, Any]:
    if isinstance(frame, bytes):
        raise InvalidField(
            "Events are JSON in text messages, and this is a binary one: send audio in base64 with "
            "input_audio_buffer.append.",
            code="invalid_message",
        )
    return read_object(frame, audio="audio")


def session_of(event: dict[str, Any]) -> dict[str, Any]:
    session = event.get("session")
    if not isinstance(session, dict):
        raise InvalidField(f"{event['type']} needs an object 'session'.", "session")
    return session


def hint_of(event: dict[str, Any]) -> TimedHint:
    text: Any = event.get("text")
    audio_start_ms: Any = event.get("audio_start_ms")
    if not isinstance(text, str):
        raise InvalidField("input_audio_buffer.hint needs 'text': what the audio may say.", "text")
    is_number = isinstance(audio_start_ms, int | float) and not isinstance(audio_start_ms, bool)
    if not is_number or not 0 <= audio_start_ms <= 1000 * MAX_START_S:
        raise InvalidField(
            "input_audio_buffer.hint needs 'audio_start_ms', milliseconds from the session's start, at most "
            f"{1000 * MAX_START_S:g}.",
            "audio_start_ms",
        )
    try:
        return hint_at(audio_start_ms / 1000, text)
    except InvalidRequest as error:
        raise InvalidField(str(error), "text") from error


def audio_of(event: dict[str, Any]) -> bytes:
    audio = event.get("audio")
    if not isinstance(audio, str):
        raise InvalidField("input_audio_buffer.append needs 'audio', samples in base64.", "audio")
    try:
        return base64.b64decode(audio, validate=True)
    except ValueError as error:
        sentence = "audio is not base64: encode the samples' bytes."
        raise InvalidField(sentence, "audio", "invalid_base64") from error

"""Events of a realtime client, parsed and validated."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

from specwhisper.errors import InvalidRequest
from specwhisper.transcription.hints import MAX_START_S, hint_at
from specwhisper.types import TimedHint
from specwhisper_gateway.errors import InvalidEvent
from specwhisper_gateway.transport.messages import SHOWN_CHARS, read_object


@dataclass(frozen=True, slots=True)
class UpdateSession:
    """Change the session's settings; ``is_flat`` for the format of the beta."""

    session: dict[str, Any]
    is_flat: bool = False
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """Append audio in the session's format."""

    audio: bytes
    ends_utterance: bool = False


@dataclass(frozen=True, slots=True)
class CommitAudio:
    """Complete the open utterance."""


@dataclass(frozen=True, slots=True)
class Done:
    """End the audio; Riva's."""


@dataclass(frozen=True, slots=True)
class Clear:
    """Discard the audio since the last commit."""


Command = UpdateSession | Append | CommitAudio | Done | Clear | TimedHint  # hints are not in OpenAI's API
KNOWN = (
    "session.update",
    "transcription_session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.commit",
    "input_audio_buffer.clear",
    "input_audio_buffer.hint",
)


def event_id_of(event: dict[str, Any]) -> str | None:
    """Return the id that a client gave its event, for the answer."""
    event_id = event.get("event_id")
    return event_id if isinstance(event_id, str) else None


async def read_event(frame: str | bytes) -> dict[str, Any]:
    """Parse an event; raise :class:`InvalidEvent` if it is not valid JSON."""
    if isinstance(frame, bytes):
        raise InvalidEvent(
            "Events are JSON in text messages, and this is a binary one: send audio in base64 with "
            "input_audio_buffer.append.",
            code="invalid_message",
        )
    return await read_object(frame, audio="audio")


def command_of(event: dict[str, Any]) -> Command:
    """Return an event's command; raise :class:`InvalidEvent` if it is invalid."""
    kind = event.get("type")
    match kind:
        case "session.update" | "transcription_session.update":
            session = event.get("session")
            if not isinstance(session, dict):
                raise InvalidEvent(f"{kind} needs an object 'session'.", "session")
            return UpdateSession(
                session, is_flat=kind == "transcription_session.update", event_id=event_id_of(event)
            )
        case "input_audio_buffer.append":
            riva = event.get("runtime_config")  # of its client
            ends_utterance = isinstance(riva, dict) and riva.get("force_eou") == "true"
            return Append(_bytes(event.get("audio")), ends_utterance)
        case "input_audio_buffer.commit":
            return CommitAudio()
        case "input_audio_buffer.done":
            return Done()
        case "input_audio_buffer.clear":
            return Clear()
        case "input_audio_buffer.hint":
            return _hint(event.get("text"), event.get("audio_start_ms"))
    raise InvalidEvent(
        f"Invalid value: {str(kind)[:SHOWN_CHARS]!r}. Supported events are: {', '.join(KNOWN)}.", "type"
    )


def _hint(text: Any, audio_start_ms: Any) -> TimedHint:
    if not isinstance(text, str):
        raise InvalidEvent("input_audio_buffer.hint needs 'text': what the audio may say.", "text")
    is_number = isinstance(audio_start_ms, int | float) and not isinstance(audio_start_ms, bool)
    if not is_number or not 0 <= audio_start_ms <= 1000 * MAX_START_S:
        raise InvalidEvent(
            "input_audio_buffer.hint needs 'audio_start_ms', milliseconds from the session's start, at most "
            f"{1000 * MAX_START_S:g}.",
            "audio_start_ms",
        )
    try:
        return hint_at(audio_start_ms / 1000, text)
    except InvalidRequest as error:
        raise InvalidEvent(str(error), "text") from error


def _bytes(audio: Any) -> bytes:
    if not isinstance(audio, str):
        raise InvalidEvent("input_audio_buffer.append needs 'audio', samples in base64.", "audio")
    try:
        return base64.b64decode(audio, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidEvent(
            "audio is not base64: encode the samples' bytes.", "audio", "invalid_base64"
        ) from error

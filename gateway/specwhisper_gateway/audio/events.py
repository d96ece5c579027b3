"""A transcription as OpenAI's server-sent events, of final text only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress

from fastapi.sse import EventSourceResponse, format_sse_event
from openai.types.audio import TranscriptionTextDeltaEvent, TranscriptionTextDoneEvent
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from specwhisper.errors import SessionExpired, SpecWhisperError
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Segment
from specwhisper_client.file_transcription import FileTranscription
from specwhisper_gateway.access_log import note_error
from specwhisper_gateway.audio.replies import languages
from specwhisper_gateway.audio.uploads import Upload, errors_about
from specwhisper_gateway.errors import ClientGone
from specwhisper_gateway.metrics import GatewayMetrics
from specwhisper_gateway.status import body_of
from specwhisper_gateway.transport.deadline import within_time
from specwhisper_gateway.transport.sockets import SEND_TIMEOUT_S

TranscriptEvent = TranscriptionTextDeltaEvent | TranscriptionTextDoneEvent
Events = AsyncGenerator[TranscriptEvent]


class Deltas:
    """Cuts a transcript into deltas whose concatenation is its text.

    The text has no space at either end, so trailing spaces are kept until text follows them.
    """

    def __init__(self) -> None:
        self._spaces = ""
        self._has_begun = False

    def add(self, segments: Iterable[Segment]) -> str:
        """Return the text that further segments add."""
        text = self._spaces + "".join(segment.text for segment in segments)
        if not self._has_begun:
            text = text.lstrip()
        delta = text.rstrip()
        self._spaces = text[len(delta) :]
        self._has_begun = self._has_begun or bool(delta)
        return delta


async def transcript_events(
    transcription: FileTranscription, upload: Upload, metrics: GatewayMetrics
) -> Events:
    """Yield a delta whenever segments become final, and the whole text at the end."""
    deltas = Deltas()
    with errors_about(upload):
        async with aclosing(aiter(transcription)) as updates:
            async for update in updates:
                if delta := deltas.add(update.segments):
                    yield TranscriptionTextDeltaEvent(type="transcript.text.delta", delta=delta)
    metrics.count_transcript(transcription.result)
    yield done(transcription.result)


def done(transcript: Transcription) -> TranscriptionTextDoneEvent:
    """Return the last event; it has no usage, which OpenAI counts in billed tokens."""
    return TranscriptionTextDoneEvent(
        type="transcript.text.done", text=transcript.text, languages=languages(transcript)
    )


class EventStream(EventSourceResponse):
    """Sends events; cancels the transcription when the client disconnects.

    Parameters
    ----------
    first : the first event; an error before it has an HTTP status of its own.
    """

    def __init__(self, first: TranscriptEvent, events: Events) -> None:
        self._events = events
        self._error: SpecWhisperError | None = ClientGone(
            "The client disconnected before the end of the stream."
        )
        # A proxy that buffers would deliver all events at the end.
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(self._written(first), headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        async with aclosing(self._events):
            try:
                async with within_time(HTTPConnection(scope)):
                    await super().__call__(scope, receive, send)
            except SessionExpired as error:
                self._error = error
                await _send_last(send, error)
        if self._error is not None:
            note_error(scope, self._error)

    async def _written(self, first: TranscriptEvent) -> AsyncGenerator[bytes]:
        yield _written(first)
        try:
            async for event in self._events:
                yield _written(event)
            self._error = None
        except SpecWhisperError as error:
            self._error = error
            yield _failure(error)


async def _send_last(send: Send, error: SpecWhisperError) -> None:
    """End a stream with an error; give up if the client does not read it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await send({"type": "http.response.body", "body": _failure(error)})


def _failure(error: SpecWhisperError) -> bytes:
    return format_sse_event(event="error", data_str=json.dumps(body_of(error)))


def _written(event: TranscriptEvent) -> bytes:
    return format_sse_event(data_str=event.model_dump_json(exclude_none=True))

"""Transcripts in OpenAI's formats: as a whole, or as server-sent events with our own for changing text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

from fastapi import Response
from fastapi.responses import PlainTextResponse
from fastapi.sse import EventSourceResponse, format_sse_event
from pydantic_core import to_json
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from specwhisper.errors import SessionExpired, SpecWhisperError
from specwhisper.printable import blanked, escaped_json
from specwhisper.transcription.formats import to_diarized_json, to_srt, to_verbose_json, to_vtt
from specwhisper.transcription.speakers import Turns
from specwhisper.transcription.transcription import Transcription
from specwhisper_client.file_transcription import FileTranscription
from specwhisper_client.updates import Deltas
from specwhisper_gateway.access_log import note_error
from specwhisper_gateway.audio.fields import AudioFields, TranscriptionFields
from specwhisper_gateway.audio.uploads import Upload, errors_about
from specwhisper_gateway.errors import ClientGone, body_of
from specwhisper_gateway.messages import NO_INTERIM, interim_of
from specwhisper_gateway.metrics import GatewayMetrics
from specwhisper_gateway.state import within_time

ENGLISH = "english"  # the language of a translation, as OpenAI names it

Events = AsyncGenerator[dict[str, Any]]


def reply(fields: AudioFields, transcript: Transcription) -> Response:
    """Return a finished transcript in the requested format.

    It takes a second for a transcript of hours: not in the event loop.
    """
    match fields.response_format:
        case "text":
            return PlainTextResponse(f"{blanked(transcript.text)}\n")
        case "srt":
            return PlainTextResponse(to_srt(transcript.segments))
        case "vtt":
            return Response(to_vtt(transcript.segments), media_type="text/vtt")
        case "verbose_json":
            document = _verbose(fields, transcript)
        case "diarized_json":
            document = diarized(transcript)
        case _:
            document = {"text": transcript.text}
            if isinstance(fields, TranscriptionFields):
                document["languages"] = languages(transcript)
    if isinstance(fields, TranscriptionFields):
        document["usage"] = {"type": "duration", "seconds": transcript.duration_s}
    body = to_json(document, inf_nan_mode="null").decode()
    return Response(escaped_json(body), media_type="application/json")


def diarized(transcript: Transcription) -> dict[str, Any]:
    return to_diarized_json(
        transcript.segments, duration_s=transcript.duration_s, task=transcript.options.task
    )


def languages(transcript: Transcription) -> list[dict[str, str]]:
    codes = (segment.language for segment in transcript.segments)
    return [{"code": code} for code in dict.fromkeys((*codes, transcript.language)) if code]


def _verbose(fields: AudioFields, transcript: Transcription) -> dict[str, Any]:
    is_transcription = isinstance(fields, TranscriptionFields)
    has_words = isinstance(fields, TranscriptionFields) and fields.has_words
    document = to_verbose_json(
        transcript.segments,
        language=transcript.language_name if is_transcription else ENGLISH,
        duration_s=transcript.duration_s,
        task=fields.task,
        word_timestamps=has_words,
        multilingual=transcript.options.multilingual or bool(transcript.options.languages),
    )
    for segment in document["segments"]:  # OpenAI's type needs a number, even if the model has none
        segment["no_speech_prob"] = segment["no_speech_prob"] or 0.0
    if not has_words:
        document.pop("words", None)
    if isinstance(fields, TranscriptionFields) and not fields.has_segments:
        del document["segments"]
    return document


async def transcript_events(
    transcription: FileTranscription,
    upload: Upload,
    metrics: GatewayMetrics,
    *,
    interim_results: bool,
    beside: AbstractAsyncContextManager[Turns | None],
) -> Events:
    """Yield a delta whenever segments are complete, and the whole text at the end.

    Two events are not OpenAI's: ``retracted`` takes back the end of the deltas' text, whose window is decoded
    again; ``interim`` has text after it that may still change. The last one has no usage, which OpenAI counts
    in billed tokens.

    Parameters
    ----------
    beside : finds the turns of speakers, if it finds any; then an event for each speaker's part of the text
        comes before the last one.
    interim_results : whether to yield text that may still change as well.
    """
    deltas, shown = Deltas(), NO_INTERIM
    with errors_about(upload):
        async with beside as turns, aclosing(aiter(transcription)) as updates:
            async for update in updates:
                retracted, delta = deltas.add(update.segments, update.settled_text)
                if retracted:
                    yield _event("retracted", text=retracted)
                if delta:
                    yield _event("delta", delta=delta)
                interim = interim_of(update)
                interim["verified"] = interim["verified"].removeprefix(update.settled_text)
                if interim_results and interim != shown:
                    yield _event("interim", **interim)
                    shown = interim
            transcript = await with_speakers(transcription.result, turns)
            if turns is not None:
                for segment in (await asyncio.to_thread(diarized, transcript))["segments"]:
                    yield segment
    metrics.count_transcript(transcript)
    warnings = [upload.without_path(sentence) for sentence in transcript.warnings]
    facts = {"warnings": warnings} if warnings else {}  # not OpenAI's
    yield _event("done", text=transcript.text, languages=languages(transcript), **facts)


async def with_speakers(transcript: Transcription, turns: Turns | None) -> Transcription:
    if turns is None:
        return transcript
    found = await turns  # thousands of turns and words take a second
    return await asyncio.to_thread(transcript.with_speakers, found)


def _event(kind: str, **facts: Any) -> dict[str, Any]:
    return {"type": f"transcript.text.{kind}"} | facts


class EventStream(EventSourceResponse):
    """Sends events; cancels the transcription when the client disconnects.

    Parameters
    ----------
    first : the first event; an error before it has an HTTP status of its own.
    """

    def __init__(self, first: dict[str, Any], events: Events) -> None:
        self._events = events
        self._error: SpecWhisperError | None = ClientGone(
            "The client disconnected before the end of the stream."
        )
        # A proxy that buffers would deliver all events at the end.
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(self._written(first), headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            try:
                async with within_time(HTTPConnection(scope)):
                    await super().__call__(scope, receive, send)
            except SessionExpired as error:
                self._error = error
                await send({"type": "http.response.body", "body": _failure(error)})
        if self._error is not None:
            note_error(scope, self._error)

    async def _written(self, first: dict[str, Any]) -> AsyncGenerator[bytes]:
        yield _written(first)
        try:
            async for event in self._events:
                yield _written(event)
            self._error = None
        except SpecWhisperError as error:
            self._error = error
            yield _failure(error)


def _failure(error: SpecWhisperError) -> bytes:
    return format_sse_event(event="error", data_str=json.dumps(body_of(error)))


def _written(event: dict[str, Any]) -> bytes:
    return format_sse_event(data_str=escaped_json(to_json(event).decode()))

"""Transcripts in OpenAI's formats."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from fastapi.responses import PlainTextResponse
from pydantic_core import to_json

from specwhisper.printable import blanked, escaped_json
from specwhisper.transcription.formats import to_diarized_json, to_srt, to_verbose_json, to_vtt
from specwhisper.transcription.transcription import Transcription
from specwhisper_gateway.audio.fields import AudioFields, TranscriptionFields

ENGLISH = "english"  # the language of a translation, as OpenAI names it


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

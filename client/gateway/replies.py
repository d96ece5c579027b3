"""Transcripts as OpenAI's API writes them, built from the openai package's own types."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from fastapi.responses import PlainTextResponse
from openai.types.audio import Transcription, TranscriptionVerbose, Translation, TranslationVerbose
from openai.types.audio.transcription import UsageDuration
from openai.types.audio.transcription_language import TranscriptionLanguage
from openai.types.audio.transcription_verbose import Usage
from pydantic import BaseModel

from client.gateway.fields import AudioFields
from client.gateway.transcription_fields import TranscriptionFields
from client.transcript import Transcript
from specwhisper.transcription.formats import to_srt, to_verbose_json, to_vtt

ENGLISH = "english"  # what a translation is in, and what OpenAI says it is


def reply(fields: AudioFields, transcript: Transcript) -> Response:
    """Write a finished transcript as it was asked for."""
    match fields.response_format:
        case "text":
            return PlainTextResponse(f"{transcript.text}\n")
        case "srt":
            return PlainTextResponse(to_srt(transcript.segments))
        case "vtt":
            return Response(to_vtt(transcript.segments), media_type="text/vtt")
        case "verbose_json":
            return _json(verbose(fields, transcript))
    return _json(plain(fields, transcript))


def plain(fields: AudioFields, transcript: Transcript) -> Transcription | Translation:
    """Give the text, and for a transcription also its language and how long the audio is."""
    if not isinstance(fields, TranscriptionFields):
        return Translation(text=transcript.text)
    return Transcription(
        text=transcript.text,
        languages=languages(transcript),
        usage=UsageDuration(type="duration", seconds=transcript.duration_s),
    )


def languages(transcript: Transcript) -> list[TranscriptionLanguage]:
    """Name what is spoken."""
    return [TranscriptionLanguage(code=transcript.language)] if transcript.language else []


def verbose(fields: AudioFields, transcript: Transcript) -> TranscriptionVerbose | TranslationVerbose:
    """Give all that is known of segments and words; a word has a probability, as in openai/whisper."""
    document = _document(fields, transcript)
    if not isinstance(fields, TranscriptionFields):
        return TranslationVerbose.model_validate(document | {"language": ENGLISH})
    if not fields.has_segments:
        del document["segments"]
    usage = Usage(type="duration", seconds=transcript.duration_s)
    return TranscriptionVerbose.model_validate(document | {"usage": usage})


def _document(fields: AudioFields, transcript: Transcript) -> dict[str, Any]:
    document = to_verbose_json(
        transcript.segments,
        language=transcript.language_name,
        duration_s=transcript.duration_s,
        task=fields.task,
        word_timestamps=isinstance(fields, TranscriptionFields) and fields.has_words,
    )
    for segment in document["segments"]:
        # OpenAI's type wants a number also of a model that cannot tell.
        segment["no_speech_prob"] = segment["no_speech_prob"] or 0.0
    return document


def _json(body: BaseModel) -> Response:
    return Response(body.model_dump_json(exclude_none=True), media_type="application/json")

"""Transcripts as OpenAI's API writes them, built from the openai package's own types."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice, starmap

from fastapi import Response
from fastapi.responses import PlainTextResponse
from openai.types.audio import (
    Transcription,
    TranscriptionSegment,
    TranscriptionVerbose,
    TranscriptionWord,
    Translation,
    TranslationVerbose,
)
from openai.types.audio.transcription import UsageDuration
from openai.types.audio.transcription_language import TranscriptionLanguage
from openai.types.audio.transcription_verbose import Usage
from pydantic import BaseModel

from specwhisper.transcription.formats import (
    spoken_words,
    srt_blocks,
    verbose_segment,
    verbose_word,
    vtt_blocks,
)
from specwhisper.types import Segment
from specwhisper_client.transcript import Transcript
from specwhisper_gateway.audio.fields import AudioFields
from specwhisper_gateway.audio.transcription_fields import TranscriptionFields

ENGLISH = "english"  # what a translation is in, and what OpenAI says it is
PIECES_AT_ONCE = 32  # segments, words or subtitles that are written while other requests wait


async def reply(fields: AudioFields, transcript: Transcript) -> Response:
    """Write a finished transcript as it was asked for; other requests have their turns meanwhile."""
    match fields.response_format:
        case "text":
            return PlainTextResponse(f"{transcript.text}\n")
        case "srt":
            return PlainTextResponse("\n".join(await _by_turns(srt_blocks(transcript.segments))))
        case "vtt":
            blocks = await _by_turns(vtt_blocks(transcript.segments))
            return Response("\n".join(blocks), media_type="text/vtt")
        case "verbose_json":
            return _json("".join(await _by_turns(verbose(fields, transcript))))
    return _json(_dumped(plain(fields, transcript)))


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


def verbose(fields: AudioFields, transcript: Transcript) -> Iterator[str]:
    """Yield, in pieces, JSON with all that is known of segments and words.

    A word has a probability, as in openai/whisper.
    """
    document = {"task": str(fields.task), "duration": transcript.duration_s, "text": transcript.text}
    if isinstance(fields, TranscriptionFields):
        usage = Usage(type="duration", seconds=transcript.duration_s)
        document |= {"language": transcript.language_name, "usage": usage}
        yield _dumped(TranscriptionVerbose.model_validate(document)).removesuffix("}")
    else:
        yield _dumped(TranslationVerbose.model_validate(document | {"language": ENGLISH})).removesuffix("}")
    if not isinstance(fields, TranscriptionFields) or fields.has_segments:
        yield from _listed("segments", starmap(_segment, enumerate(transcript.segments)))
    if isinstance(fields, TranscriptionFields) and fields.has_words:
        words = (TranscriptionWord.model_validate(verbose_word(w)) for w in spoken_words(transcript.segments))
        yield from _listed("words", words)
    yield "}"


def _segment(number: int, segment: Segment) -> TranscriptionSegment:
    laid_out = verbose_segment(number, segment)
    # OpenAI's type wants a number also of a model that cannot tell.
    return TranscriptionSegment.model_validate(
        laid_out | {"no_speech_prob": laid_out["no_speech_prob"] or 0.0}
    )


def _listed(name: str, items: Iterable[BaseModel]) -> Iterator[str]:
    """Yield a member of an object, which has others before it, that is a list."""
    yield f',"{name}":['
    for at, item in enumerate(items):
        yield f"{',' if at else ''}{_dumped(item)}"
    yield "]"


async def _by_turns(pieces: Iterator[str]) -> list[str]:
    """Collect pieces, of which a transcript of hours has thousands; let other tasks run in between."""
    collected: list[str] = []
    while some := list(islice(pieces, PIECES_AT_ONCE)):
        collected += some
        await asyncio.sleep(0)
    return collected


def _dumped(body: BaseModel) -> str:
    return body.model_dump_json(exclude_none=True)


def _json(body: str) -> Response:
    return Response(body, media_type="application/json")

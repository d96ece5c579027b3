"""Transcripts in OpenAI's formats, built from the openai package's types."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice

from fastapi import Response
from fastapi.responses import PlainTextResponse
from openai.types.audio import Transcription as TranscriptionReply
from openai.types.audio import (
    TranscriptionSegment,
    TranscriptionVerbose,
    TranscriptionWord,
    Translation,
    TranslationVerbose,
)
from openai.types.audio.transcription import UsageDuration
from openai.types.audio.transcription_diarized import TranscriptionDiarized
from openai.types.audio.transcription_language import TranscriptionLanguage
from openai.types.audio.transcription_verbose import Usage
from pydantic import BaseModel

from specwhisper.printable import blanked, escaped_json
from specwhisper.transcription.formats import (
    spoken_words,
    srt_blocks,
    to_diarized_json,
    verbose_head,
    verbose_segment,
    verbose_word,
    vtt_blocks,
)
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Segment
from specwhisper_gateway.audio.fields import AudioFields
from specwhisper_gateway.audio.transcription_fields import TranscriptionFields

ENGLISH = "english"  # the language of a translation, as OpenAI names it
PIECES_AT_ONCE = 32  # segments, words or subtitles to format before other requests run


async def reply(fields: AudioFields, transcript: Transcription) -> Response:
    """Return a finished transcript in the requested format.

    Other requests run in between.
    """
    match fields.response_format:
        case "text":
            return PlainTextResponse(f"{blanked(transcript.text)}\n")
        case "srt":
            return PlainTextResponse("\n".join(await _in_turns(srt_blocks(transcript.segments))))
        case "vtt":
            blocks = await _in_turns(vtt_blocks(transcript.segments))
            return Response("\n".join(blocks), media_type="text/vtt")
        case "verbose_json":
            return _json("".join(await _in_turns(verbose(fields, transcript))))
        case "diarized_json":
            return _json(_dumped(diarized(transcript)))
        case "json":
            return _json(_dumped(plain(fields, transcript)))
    raise ValueError(f"{fields.response_format} isn't a format of a reply.")


def plain(fields: AudioFields, transcript: Transcription) -> TranscriptionReply | Translation:
    if not isinstance(fields, TranscriptionFields):
        return Translation(text=transcript.text)
    return TranscriptionReply(
        text=transcript.text,
        languages=languages(transcript),
        usage=UsageDuration(type="duration", seconds=transcript.duration_s),
    )


def diarized(transcript: Transcription) -> TranscriptionDiarized:
    document = to_diarized_json(
        transcript.segments, duration_s=transcript.duration_s, task=transcript.options.task
    )
    usage = UsageDuration(type="duration", seconds=transcript.duration_s)
    return TranscriptionDiarized.model_validate(document | {"usage": usage.model_dump()})


def languages(transcript: Transcription) -> list[TranscriptionLanguage]:
    codes = (segment.language for segment in transcript.segments)
    found = dict.fromkeys(code for code in (*codes, transcript.language) if code)
    return [TranscriptionLanguage(code=code) for code in found]


def verbose(fields: AudioFields, transcript: Transcription) -> Iterator[str]:
    """Yield, in pieces, JSON with all fields of segments and words.

    A word has a probability, as in openai/whisper.
    """
    is_translation = not isinstance(fields, TranscriptionFields)
    head = verbose_head(
        transcript.text,
        language=ENGLISH if is_translation else transcript.language_name,
        duration_s=transcript.duration_s,
        task=fields.task,
    )
    if is_translation:
        yield _dumped(TranslationVerbose.model_validate(head)).removesuffix("}")
    else:
        usage = Usage(type="duration", seconds=transcript.duration_s)
        yield _dumped(TranscriptionVerbose.model_validate(head | {"usage": usage})).removesuffix("}")
    if not isinstance(fields, TranscriptionFields) or fields.has_segments:
        has_language = transcript.options.multilingual or bool(transcript.options.languages)
        segments = enumerate(transcript.segments)
        yield from _listed("segments", (_segment(*each, has_language=has_language) for each in segments))
    if isinstance(fields, TranscriptionFields) and fields.has_words:
        words = (TranscriptionWord.model_validate(verbose_word(w)) for w in spoken_words(transcript.segments))
        yield from _listed("words", words)
    yield "}"


def _segment(number: int, segment: Segment, *, has_language: bool) -> TranscriptionSegment:
    laid_out = verbose_segment(number, segment, has_language=has_language)
    # OpenAI's type needs a number, even if the model has none.
    laid_out["no_speech_prob"] = laid_out["no_speech_prob"] or 0.0
    return TranscriptionSegment.model_validate(laid_out)


def _listed(name: str, items: Iterable[BaseModel]) -> Iterator[str]:
    yield f',"{name}":['
    for at, item in enumerate(items):
        yield f"{',' if at else ''}{_dumped(item)}"
    yield "]"


async def _in_turns(pieces: Iterator[str]) -> list[str]:
    """Collect pieces, thousands for a transcript of hours.

    Let other tasks run in between.
    """
    collected: list[str] = []
    while some := list(islice(pieces, PIECES_AT_ONCE)):
        collected += some
        await asyncio.sleep(0)
    return collected


def _dumped(body: BaseModel) -> str:
    return escaped_json(body.model_dump_json(exclude_none=True))


def _json(body: str) -> Response:
    return Response(body, media_type="application/json")

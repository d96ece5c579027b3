"""Long transcripts are formatted in pieces, and other requests run between them."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from specwhisper.options import DecodingOptions
from specwhisper.transcription.formats import to_srt, to_verbose_json, to_vtt
from specwhisper.types import Segment, Word
from specwhisper_gateway.audio.replies import PIECES_AT_ONCE, reply
from specwhisper_gateway.audio.transcription_fields import TranscriptionFields

NUM_SEGMENTS, NUM_WORDS = 400, 5
WORDS = [("timestamp_granularities[]", "word"), ("timestamp_granularities[]", "segment")]


def segment(number: int) -> Segment:
    words = tuple(Word(number + at / 5, number + at / 5 + 0.1, ' "so', 0.9) for at in range(NUM_WORDS))
    return Segment(number, number + 1.0, (1, 2), ' "so' * NUM_WORDS, words=words)


SEGMENTS = tuple(map(segment, range(NUM_SEGMENTS)))
TEXT = "".join(each.text for each in SEGMENTS).strip()
TRANSCRIPT = SimpleNamespace(
    segments=SEGMENTS,
    text=TEXT,
    language="en",
    language_name="english",
    duration_s=float(NUM_SEGMENTS),
    options=DecodingOptions.greedy(),
)


def fields(response_format: str, *more: tuple[str, str]) -> TranscriptionFields:
    return TranscriptionFields.read([("model", "m"), ("response_format", response_format), *more])


@pytest.mark.parametrize(
    ("form", "num_pieces"),
    [
        (fields("verbose_json", *WORDS), NUM_SEGMENTS * (1 + NUM_WORDS)),
        (fields("verbose_json"), NUM_SEGMENTS),
        (fields("srt"), NUM_SEGMENTS),
        (fields("vtt"), NUM_SEGMENTS),
    ],
)
async def test_other_requests_run_while_a_long_transcript_is_formatted(form, num_pieces):
    num_turns = 0

    async def other() -> None:
        nonlocal num_turns
        while True:
            num_turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(other())
    await reply(form, TRANSCRIPT)
    working.cancel()
    assert num_turns >= num_pieces // PIECES_AT_ONCE


async def test_concatenated_pieces_are_the_document():
    assert (await reply(fields("srt"), TRANSCRIPT)).body.decode() == to_srt(SEGMENTS)
    assert (await reply(fields("vtt"), TRANSCRIPT)).body.decode() == to_vtt(SEGMENTS)
    document = to_verbose_json(SEGMENTS, language="english", duration_s=float(NUM_SEGMENTS))
    for written in document["segments"]:
        written["no_speech_prob"] = 0.0
    usage = {"usage": {"type": "duration", "seconds": float(NUM_SEGMENTS)}}
    verbose = json.loads((await reply(fields("verbose_json", *WORDS), TRANSCRIPT)).body)
    assert verbose == document | usage
    only_words = json.loads((await reply(fields("verbose_json", *WORDS[:1]), TRANSCRIPT)).body)
    assert only_words == {name: value for name, value in verbose.items() if name != "segments"}
    nothing = SimpleNamespace(
        segments=(), text="", language="", language_name="", duration_s=0.0, options=DecodingOptions.greedy()
    )
    empty = json.loads((await reply(fields("verbose_json", *WORDS), nothing)).body)
    assert (empty["segments"], empty["words"], empty["text"]) == ([], [], "")

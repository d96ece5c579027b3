"""Voice activity marks recordings alike in any pieces, and from any boundary on."""

from functools import cache
from random import Random

import numpy as np
import pytest

from specwhisper.audio.decode import decode_file
from specwhisper.live import EndpointingOptions
from specwhisper.model.checkpoints.names import DEMO_FOLDER
from specwhisper.types import SAMPLE_RATE, VoiceEvent, VoiceMark
from specwhisper_draft_server.voice_activity import VoiceActivity
from tests.nightly import examples

SILENCE_S = 11
OPTIONS = {
    "defaults": EndpointingOptions(),
    "cuts": EndpointingOptions(max_piece_ms=2_500, silence_duration_ms=700),
    "none": None,
}


@cache
def pcm() -> bytes:
    """Return speech with pauses, a long silence, and speech again."""
    speech = b"".join(decode_file(DEMO_FOLDER / "human" / "jfk.flac"))
    again = b"".join(decode_file(DEMO_FOLDER / "human" / "austen_0880.flac"))
    return speech + bytes(SILENCE_S * SAMPLE_RATE * 2) + again


async def marks_of(
    options: EndpointingOptions | None, pieces: list[int], start_sample: int = 0, *, is_speech: bool = False
) -> tuple[list[VoiceMark], list[tuple[int, bool]]]:
    """Return the marks of the audio from a sample on, in pieces of some bytes, and all boundaries."""
    voice = VoiceActivity(options, start_sample, is_speech=is_speech)
    marks, boundaries, at = [], [], start_sample * 2
    while at < len(pcm()):
        size = pieces[len(boundaries) % len(pieces)]
        marks += await voice.detect(pcm()[at : at + size])
        at += size
        boundaries.append((voice.boundary_sample, voice._endpointer.is_speech))
    return [*marks, *voice.end_utterance()], boundaries


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
async def test_recordings_are_marked_alike_from_any_boundary_on(options):
    marks, boundaries = await marks_of(options, [3_200])
    assert {mark.event for mark in marks} >= {
        VoiceEvent.BEGIN,
        VoiceEvent.BREAK if options is None else VoiceEvent.END,
    }
    assert len(set(boundaries)) > 2
    for boundary, is_speech in sorted(set(boundaries)):
        later, _ = await marks_of(options, [32_000], boundary, is_speech=is_speech)
        # A boundary within an utterance is a cut; its mark, or its end's, is not found again.
        first = sum(mark.sample <= boundary for mark in marks if mark.event is not VoiceEvent.BEGIN)
        first += sum(mark.sample < boundary for mark in marks if mark.event is VoiceEvent.BEGIN)
        assert later == marks[first:]


async def test_pieces_of_any_length_have_the_same_marks():
    whole, _ = await marks_of(OPTIONS["cuts"], [len(pcm())])
    random = Random(0)
    for _ in range(examples(by_day=2, at_night=20)):
        pieces = [2 * random.randint(1, 20_000) for _ in range(random.randint(1, 5))]
        assert (await marks_of(OPTIONS["cuts"], pieces))[0] == whole, pieces


async def test_noise_is_no_speech_however_often_the_model_starts_anew():
    voice = VoiceActivity(EndpointingOptions(min_speech_ms=0))
    times = np.arange(30 * SAMPLE_RATE) / SAMPLE_RATE
    hum = 3_000 * np.sin(2 * np.pi * 100 * times) + np.random.default_rng(0).normal(0, 300, len(times))
    assert await voice.detect(hum.astype("<i2").tobytes()) == []
    assert voice.boundary_sample == 28 * SAMPLE_RATE
    assert voice.end_utterance() == []


async def test_a_word_cut_off_by_the_client_is_not_lost():
    voice = VoiceActivity(EndpointingOptions())
    assert await voice.detect(pcm()[: SAMPLE_RATE * 2 // 2]) == []
    marks = voice.end_utterance()
    assert [mark.event for mark in marks] == [VoiceEvent.BEGIN, VoiceEvent.BREAK]
    assert marks[1].sample == voice.boundary_sample == SAMPLE_RATE // 2

"""The VAD filter in one process: the text of the speech alone, with the times of the recording."""

from pathlib import Path

import numpy as np
import pytest

import specwhisper
from specwhisper import SpeculativeWhisper, VadOptions
from specwhisper.audio.decode import decode_file
from specwhisper.audio.speech import find_speech
from tests.nightly import mostly_nightly

SAMPLES = Path(specwhisper.__file__).parent / "demo" / "samples"
RATE = 16_000
BREAK_S = 6.0


@pytest.fixture(scope="module")
def whisper():
    return SpeculativeWhisper("demo-draft-tiny", "demo-target", device="cpu", batch_size=2)


@pytest.fixture(scope="module")
def pcm() -> bytes:
    """Return the beginnings of two recordings with a long break between them."""
    one, other = (
        b"".join(decode_file(SAMPLES / name))[: 2 * 5 * RATE]
        for name in ("01_phone_call.flac", "07_a_letter.flac")
    )
    return one + bytes(int(2 * BREAK_S * RATE)) + other


def samples(pcm: bytes) -> np.ndarray:
    return np.frombuffer(pcm, "<i2")


@pytest.mark.parametrize("options", mostly_nightly([{"word_timestamps": True}, {"chunk_length_s": 15}]))
def test_the_text_is_that_of_the_speech_and_times_are_those_of_the_recording(whisper, pcm, options):
    speech = find_speech([pcm], VadOptions())
    assert len(speech.spans) == 2
    alone = b"".join(pcm[2 * span.start : 2 * span.stop] for span in speech.spans)
    expected = whisper.transcribe(samples(alone), language="en", **options)
    result = whisper.transcribe(samples(pcm), language="en", vad_filter=True, **options)
    assert result.text == expected.text
    assert len(result.text) > 80
    assert [segment.tokens for segment in result.segments] == [
        segment.tokens for segment in expected.segments
    ]
    assert result.duration_s == len(pcm) / 2 / RATE
    assert result.duration_after_vad_s == len(alone) / 2 / RATE
    break_begins_s = speech.spans[0].stop / RATE
    for piece in (*result.segments, *result.words):
        assert not break_begins_s + 0.01 < piece.start_s < break_begins_s + BREAK_S - 1
    times = [time_s for piece in result.words or result.segments for time_s in (piece.start_s, piece.end_s)]
    assert times == sorted(times)
    assert times[-1] <= result.duration_s


def test_recordings_without_speech_and_errors_are_in_their_places(whisper, pcm, tmp_path):
    (tmp_path / "broken.wav").write_bytes(b"RIFF, or so")
    audio = [
        np.zeros(RATE, np.int16),
        str(tmp_path / "broken.wav"),
        samples(pcm),
        np.zeros(2 * RATE, np.int16),
    ]
    for options in ({}, {"chunk_length_s": 15}):
        silent, error, spoken, also_silent = whisper.transcribe(
            audio, language="en", vad_filter=True, on_error="return", max_new_tokens=8, **options
        )
        assert (silent.text, silent.duration_s, silent.duration_after_vad_s) == ("", 1.0, 0.0)
        assert (also_silent.text, also_silent.duration_s) == ("", 2.0)
        assert "cannot be decoded" in str(error)
        assert spoken.text

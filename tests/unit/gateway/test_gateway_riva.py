"""Settings of Riva's realtime client."""

import io
import wave
from math import nan

import pytest

from specwhisper.live import EndpointingOptions
from specwhisper_gateway.errors import InvalidField
from specwhisper_gateway.realtime.riva import WavPieces, updated
from specwhisper_gateway.realtime.settings import RealtimeSettings

DEFAULT_MS = EndpointingOptions().silence_duration_ms


@pytest.mark.parametrize(
    ("endpointing", "silence_ms"),
    [
        ({}, DEFAULT_MS),
        ({"stop_history": -1, "stop_threshold": -1.0}, DEFAULT_MS),
        ({"stop_history": 800, "stop_threshold": 0.5}, 400),
        ({"stop_threshold": 0.5}, 400),
        ({"stop_history": 100, "stop_threshold": 0.2}, 32),
    ],
)
def test_the_part_of_a_window_that_must_be_silent_ends_an_utterance(endpointing, silence_ms):
    settings = updated(RealtimeSettings(), {"endpointing_config": endpointing})
    assert settings.endpointing.silence_duration_ms == silence_ms


@pytest.mark.parametrize(
    "endpointing",
    [
        {"stop_history": "300"},
        {"stop_history": 10**400},
        {"stop_history": 300, "stop_threshold": nan},
        [300],
    ],
)
def test_numbers_that_no_window_has_are_refused(endpointing):
    with pytest.raises(InvalidField):
        updated(RealtimeSettings(), {"endpointing_config": endpointing})


def test_boosted_phrases_are_keywords():
    boosting = {"word_boosting_list": [{"phrases": ["Clara", "Vienna"]}, {"phrases": None}, {}]}
    assert updated(RealtimeSettings(), {"word_boosting": boosting}).keywords == ("Clara", "Vienna")


@pytest.mark.parametrize("phrases", ["Bees", [["Clara"]]])
def test_phrases_that_are_no_texts_are_refused(phrases):
    with pytest.raises(InvalidField, match="phrases must be a list of texts"):
        updated(RealtimeSettings(), {"word_boosting": {"word_boosting_list": [{"phrases": phrases}]}})


def wav(pcm: bytes, width: int = 2, size: int | None = None) -> bytes:
    """Return a WAV file with a chunk after its samples, and another size of these in the header."""
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setparams((1, width, 16_000, 0, "NONE", ""))
        written.writeframes(pcm)
    data = bytearray(file.getvalue())
    if size is not None:
        data[40:44] = size.to_bytes(4, "little")
    return bytes(data) + b"LIST\x06\x00\x00\x00noise!"


@pytest.mark.parametrize("piece_bytes", [44, 46, 144, 10_000])
def test_what_follows_the_samples_of_a_file_is_no_audio(piece_bytes):
    pcm, pieces = bytes(range(256)) * 2, WavPieces()
    file = wav(pcm)
    for _ in range(2):  # files may follow each other
        cut = [file[start : start + piece_bytes] for start in range(0, len(file), piece_bytes)]
        assert b"".join(map(pieces.samples_of, cut)) == pcm
    pieces.finish()
    assert pieces.samples_of(b"raw!") == b"raw!"


@pytest.mark.parametrize("size", [0, 0xFFFF_FFFF, 0x7FFF_FFFF])
def test_a_file_without_a_size_has_samples_to_its_end(size):
    pcm, pieces = bytes(range(256)) * 2, WavPieces()
    file = wav(pcm, size=size)[: 44 + len(pcm)]
    assert b"".join(map(pieces.samples_of, (file[:144], file[144:]))) == pcm


@pytest.mark.parametrize("file", [b"RIFF", wav(bytes(6), width=3), b"RIFF" + bytes(100)])
def test_a_file_without_16_bit_samples_is_refused(file):
    with pytest.raises(InvalidField, match="16-bit samples in one channel"):
        WavPieces().samples_of(file)

"""Streams of Riva's clients, cut anywhere, become the samples that are in them."""

import io
from itertools import pairwise

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from riva.client.proto import riva_asr_pb2

from specwhisper.audio.wav import MAX_HEADER_BYTES
from specwhisper.errors import InvalidAudio, InvalidRequest
from specwhisper_riva.requests import StreamedAudio

RATE = 8_000
PCM = np.random.default_rng(0).integers(-20_000, 20_000, 999).astype("<i2").tobytes()
RAW = riva_asr_pb2.RecognitionConfig(encoding="LINEAR_PCM", sample_rate_hertz=RATE)
SILENT = riva_asr_pb2.RecognitionConfig()  # a client that says nothing of its audio


def wav(subtype: str = "PCM_16", container: str = "WAV", num_channels: int = 1) -> bytes:
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", RATE, num_channels, subtype, format=container) as sound:
        sound.buffer_write(PCM, "int16")
    return file.getvalue()


def samples_of(file: bytes) -> bytes:
    with soundfile.SoundFile(io.BytesIO(file)) as sound:
        return bytes(sound.buffer_read(dtype="int16"))


def decoded(chunks, config) -> tuple[bytes, StreamedAudio]:
    audio = StreamedAudio(config)
    pcm = b"".join(audio.push(chunk) for chunk in chunks)
    return pcm + audio.finish(), audio


def cut(data: bytes, places) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


FILES = {
    (subtype, container): wav(subtype, container)
    for container in ("WAV", "WAVEX")
    for subtype in ("PCM_16", "ULAW", "ALAW")
}


@given(st.sampled_from(sorted(FILES)), st.lists(st.integers(0, 4_000), max_size=20), st.booleans())
def test_a_wav_file_cut_anywhere(kind, places, is_called_pcm):
    file = FILES[kind]
    pcm, audio = decoded(cut(file, places), RAW if is_called_pcm else SILENT)
    assert pcm == samples_of(file)
    assert (audio.samples.sample_rate, audio.samples.num_channels) == (RATE, 1)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_raw_samples_cut_anywhere_stay_unchanged(data, places):
    if data and data[:1] != b"R":
        assert decoded(cut(data, places), RAW)[0] == data


@pytest.mark.parametrize("data", [b"R", b"RIFF", b"RIFFabcdABCD", b"RIFX" + bytes(20)])
def test_raw_samples_that_look_like_the_start_of_a_wav_file(data):
    assert decoded([data[:1], data[1:]], RAW)[0] == data


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFFFFF])
def test_a_wav_file_without_a_size(size):
    file = wav()
    start = file.index(b"data") + 4
    file = file[:start] + size.to_bytes(4, "little") + file[start + 4 :]
    assert decoded([file], SILENT)[0] == PCM


def test_data_after_the_samples_is_ignored():
    pcm, audio = decoded([wav(num_channels=3), b"LIST\x04\0\0\0info"], SILENT)
    assert (pcm, audio.samples.num_channels) == (PCM, 3)


@pytest.mark.parametrize("subtype", ["PCM_24", "FLOAT"])
def test_other_formats_are_refused(subtype):
    with pytest.raises(InvalidAudio, match="to Recognize"):
        decoded([wav(subtype)], SILENT)
    with pytest.raises(InvalidRequest, match="encoding FLAC must be a WAV file"):
        decoded([b"fLaC", bytes(1_000)], riva_asr_pb2.RecognitionConfig(encoding="FLAC"))


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"", "no audio"),
        (wav()[:30], "ends within the header"),
        (b"RIFF\0\0\0\0WAVEdata\4\0\0\0abcd", "no format"),
        (b"RIFF\0\0\0\0WAVEfmt \2\0\0\0ab" + bytes(9), "has 2 bytes"),
        (b"RIFF\0\0\0\0WAVEjunk\xff\xff\xff\xffab", f"first {MAX_HEADER_BYTES} bytes"),
        (b"RIFF\0\0\0\0WAVEfmt \xff\xff\xff\xffab", "ends within the header"),
    ],
)
def test_invalid_headers(head, words):
    with pytest.raises(InvalidAudio, match=words):
        decoded([head], SILENT)


def test_an_unsupported_sample_rate():
    file = wav()
    file = file[:24] + (999).to_bytes(4, "little") + file[28:]
    with pytest.raises(InvalidRequest, match="sample_rate_hertz is 999"):
        decoded([file], SILENT)

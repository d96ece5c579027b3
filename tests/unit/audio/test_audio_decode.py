"""Files of all formats become canonical PCM; files that are none are refused."""

import io
import os
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile

from specwhisper.audio.damage import Warnings
from specwhisper.audio.decode import G711, check_stated_length, decode_file, decode_g711
from specwhisper.errors import InvalidAudio
from specwhisper.selection import Selection


def tone(duration_s: float, rate: int) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * 440 * np.arange(int(duration_s * rate)) / rate)).astype(np.float32)


def encode(samples: np.ndarray, rate: int, container: str = "WAV", subtype: str | None = None) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=container, subtype=subtype)
    return buffer.getvalue()


def muxed(
    container: str, codec: str, samples: np.ndarray, rate: int, layout: str = "mono", gaps=(), **options: str
) -> bytes:
    """Encode samples, [frames, channels]; ``gaps`` are a time each, and the seconds that move later times."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container, options=options) as output:
        stream = output.add_stream(codec, rate=rate, layout=layout)
        frame = av.AudioFrame.from_ndarray(np.float32(samples.T).copy(), format="fltp", layout=layout)
        frame.sample_rate, frame.pts = rate, 0
        wanted = av.AudioResampler(format=stream.codec_context.format, layout=layout, rate=rate)
        packets = [packet for piece in wanted.resample(frame) for packet in stream.encode(piece)]
        for packet in packets + stream.encode(None):
            if packet.pts is not None:
                time_s = packet.pts * packet.time_base
                moved = sum(int(by_s / packet.time_base) for at_s, by_s in gaps if time_s >= at_s)
                packet.pts, packet.dts = packet.pts + moved, packet.dts + moved
            output.mux(packet)
    return buffer.getvalue()


def decoded(
    file: bytes | Path, *, strict: bool = False, **selection: Any
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the samples of a file, and the warnings."""
    warnings = Warnings(is_strict=strict)
    source = io.BytesIO(file) if isinstance(file, bytes) else file
    pcm = b"".join(decode_file(source, None, warnings, Selection(**selection)))
    return np.frombuffer(pcm, "<i2") / 32768, warnings.sentences


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT"])
def test_canonical_wav_passes_unchanged(subtype, tmp_path):
    pcm = np.random.default_rng(0).integers(-32768, 32768, 40_000).astype(np.int16)
    path = tmp_path / "canonical.wav"
    samples = pcm if subtype != "FLOAT" else (pcm / 32768).astype(np.float32)
    soundfile.write(path, samples, 16_000, subtype=subtype)
    assert b"".join(decode_file(path)) == pcm.tobytes()


NOISE = np.random.default_rng(0).bytes(5_000)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("nowhere.wav", None, r"^Audio file '.*nowhere\.wav' does not exist\.$"),
        (".", None, "cannot be read: Is a directory"),
        ("-", None, r"^'-' isn't a file, and standard input is not read"),
        ("noise.wav", NOISE, r"noise\.wav' cannot be decoded: neither libsndfile nor FFmpeg"),
        ("noise.m4a", NOISE, r"noise\.m4a' cannot be decoded: neither libsndfile nor FFmpeg"),
        ("cut-off.mp4", muxed("mp4", "aac", tone(1, 48_000)[:, None], 48_000)[:4_000], "cannot be decoded"),
        ("no bytes", b"", "'no bytes' holds no audio samples"),
        ("no samples", encode(np.zeros(0, np.float32), 16_000), "'no samples' holds no audio samples"),
    ],
)
def test_what_cannot_be_decoded_is_named(name, content, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_bytes(content)
    with pytest.raises(InvalidAudio, match=problem):
        next(decode_file(name))


def test_a_pipe_is_refused():
    reading, writing = os.pipe()
    os.close(writing)
    with pytest.raises(InvalidAudio, match=r"^Audio file '/dev/fd/\d+' is a pipe: .*write it to a file"):
        next(decode_file(f"/dev/fd/{reading}"))
    os.close(reading)


def test_a_file_without_an_audio_track_is_refused():
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="matroska") as output:
        stream = output.add_stream("mpeg4", rate=25)
        stream.width = stream.height = 16
        stream.pix_fmt = "yuv420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((24, 16), np.uint8), format="yuv420p")
        for packet in (*stream.encode(frame), *stream.encode(None)):
            output.mux(packet)
    with pytest.raises(InvalidAudio, match=r"^The audio has no audio track\.$"):
        decoded(buffer.getvalue())


def test_the_duration_is_limited(tmp_path):
    path = tmp_path / "long.flac"
    path.write_bytes(encode(np.zeros(16_000 * 20, np.float32), 16_000, "FLAC"))
    with pytest.raises(InvalidAudio, match=r"long\.flac' is longer than the limit of 10 s\.$"):
        for _ in decode_file(path, max_duration_s=10):
            pass
    assert sum(len(pcm) for pcm in decode_file(path, max_duration_s=20)) == 640_000


@pytest.mark.parametrize("container", ["FLAC", "OGG", "WAV"])
def test_a_length_that_the_container_states_is_refused_at_once(tmp_path, container):
    path = tmp_path / f"a.{container.lower()}"
    path.write_bytes(encode(tone(2, 8_000), 8_000, container))
    check_stated_length(path, 2.5)
    with pytest.raises(InvalidAudio, match=r"is longer than the limit of 1\.5 s: its header states 2\.0 s"):
        check_stated_length(path, 1.5)
    path.write_bytes(b"no audio")
    check_stated_length(path, 1)  # the decoder will say so
    check_stated_length(tmp_path / "none.wav", 1)


@pytest.mark.parametrize("law", G711)
def test_g711_becomes_the_samples_that_libsndfile_writes_and_reads(law):
    samples = (20_000 * np.sin(np.arange(800) / 7)).astype(np.int16)
    file = io.BytesIO()
    soundfile.write(file, samples, 8_000, format="RAW", subtype=law)
    decoded = np.frombuffer(decode_g711(file.getvalue(), law), "<i2")
    assert len(decoded) == len(samples)
    assert np.abs(decoded.astype(int) - samples).max() < 1_024  # half a step of the loudest samples
    assert decode_g711(b"", law) == b""

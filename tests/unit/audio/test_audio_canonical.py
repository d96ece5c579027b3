"""Canonical audio does not depend on the cuts; 16 kHz mono passes unchanged."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specwhisper.audio.canonical import CanonicalStream
from specwhisper.errors import InvalidAudio


def noise(num_frames: int, num_channels: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((num_frames, num_channels)) * 0.3).astype(np.float32)


def pieces(length: int, cuts: list[int]) -> list[slice]:
    edges = sorted({0, length, *(cut % (length + 1) for cut in cuts)})
    return [slice(a, b) for a, b in pairwise(edges)]


@settings(max_examples=60, deadline=None)
@given(
    rate=st.sampled_from(
        [1_000, 8_000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000, 192_000, 768_000, 15_999]
    ),
    num_channels=st.integers(1, 9),
    num_frames=st.integers(1, 9_000),
    cuts=st.lists(st.integers(0, 10**6), max_size=12),
    as_float=st.booleans(),
)
def test_output_does_not_depend_on_chunking(rate, num_channels, num_frames, cuts, as_float):
    samples = noise(num_frames, num_channels)
    if not as_float:
        samples = (samples * 20_000).astype(np.int16)
    whole = CanonicalStream(rate, num_channels)
    cut_up = CanonicalStream(rate, num_channels)
    expected = whole.push(samples) + whole.finish()
    received = b"".join(cut_up.push(samples[piece]) for piece in pieces(num_frames, cuts)) + cut_up.finish()
    assert received == expected
    if not as_float:  # bytes may be cut within a sample
        data, of_bytes = samples.tobytes(), CanonicalStream(rate, num_channels)
        received = b"".join(of_bytes.push(data[piece]) for piece in pieces(len(data), cuts))
        assert received + of_bytes.finish() == expected
    assert len(expected) // 2 == pytest.approx(num_frames * 16_000 / rate, abs=1)


@given(data=st.binary(max_size=400).filter(lambda data: len(data) % 2 == 0))
def test_canonical_samples_pass_unchanged(data):
    floats = (np.frombuffer(data, "<i2") / 32768).astype(np.float32)
    for samples in (data, floats):
        stream = CanonicalStream(16_000, 1)
        assert stream.push(samples) + stream.finish() == data


def test_floats_are_rounded_half_to_even_and_clipped():
    scaled = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.49, 40_000, -40_000, 32_767.4], np.float32)
    pcm = CanonicalStream(16_000, 1).push(scaled / np.float32(32768))
    assert np.frombuffer(pcm, "<i2").tolist() == [0, 2, 2, 0, -2, 0, 32_767, -32_768, 32_767]


def test_channels_are_averaged():
    stereo = np.array([[100, 200], [-32_768, 1_000], [7, 8]], np.int16)
    for samples in (stereo, stereo.ravel(), stereo.tobytes(), (stereo / 32768).astype(np.float32)):
        assert np.frombuffer(CanonicalStream(16_000, 2).push(samples), "<i2").tolist() == [150, -15_884, 8]


def test_a_tone_keeps_its_frequency_and_level():
    seconds = np.arange(48_000) / 48_000
    stream = CanonicalStream(48_000, 1)
    tone = (0.5 * np.sin(2 * np.pi * 1_000 * seconds)).astype(np.float32)
    resampled = np.frombuffer(stream.push(tone) + stream.finish(), "<i2")[1_000:-1_000] / 32768
    expected = 0.5 * np.sin(2 * np.pi * 1_000 * np.arange(16_000) / 16_000)[1_000:-1_000]
    np.testing.assert_allclose(resampled, expected, atol=1e-3)


@pytest.mark.parametrize(
    ("rate", "num_channels", "problem"),
    [
        *(
            (rate, 1, rf"{rate} Hz .* between 1000 and 768000 Hz\.$")
            for rate in (999, 768_001, 16_000.5, np.nan, -np.inf)
        ),
        *((rate, 1, "it must be a whole number between") for rate in ("16000", None)),
        *((16_000, number, f"{number} channels") for number in (0, 65, 1.5)),
    ],
)
def test_an_unsupported_format_is_named_with_the_limits(rate, num_channels, problem):
    with pytest.raises(InvalidAudio, match=problem):
        CanonicalStream(rate, num_channels)


@pytest.mark.parametrize("rate", [48_000.0, np.float64(48_000), np.int64(48_000)])
def test_a_whole_sample_rate_of_any_type_is_taken(rate):
    samples = np.ones(480, np.float32) / 2
    assert CanonicalStream(rate).push(samples) == CanonicalStream(48_000).push(samples)


def test_half_a_frame_at_the_end_is_left_out():
    stream = CanonicalStream(16_000, 2)
    stream.push(b"\1\2\3\4\5\6")
    assert stream.finish() == b""


def test_samples_that_are_not_finite_are_silence():
    samples = np.array([[0.5, 0.5], [np.nan, 0.5], [np.inf, -np.inf], [0.5, 0.5]], np.float32)
    pcm = CanonicalStream(16_000, 2).push(samples)
    assert np.frombuffer(pcm, "<i2").tolist() == [16_384, 8_192, 0, 16_384]


@pytest.mark.parametrize(
    ("samples", "num_channels", "problem"),
    [
        (np.zeros(3, np.int16), 2, "3 samples are not whole frames of 2 channels"),
        (np.zeros(3), 1, "float64"),
        *(
            (np.full(4, size, np.float32), number, "between -1 and 1: divide numbers of 16 bits by 32768")
            for size, number in ((-16_384, 1), (50, 2))
        ),
    ],
    ids=["half a frame", "float64", "16 bits as floats", "stereo"],
)
def test_samples_of_another_kind_are_refused(samples, num_channels, problem):
    with pytest.raises(InvalidAudio, match=problem):
        CanonicalStream(16_000, num_channels).push(samples)

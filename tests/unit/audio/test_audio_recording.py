"""A recording in pieces has the features of the whole file by transformers."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import WhisperFeatureExtractor

from specwhisper.audio.recording import Recording, log_mel_max
from specwhisper.errors import InvalidAudio
from specwhisper.options import Padding
from specwhisper.types import CONTEXT_SAMPLES, AudioChunk

WINDOW = 480_000
# On this audio transformers differs from float64 by up to 1.4e-5, and we differ by up to 0.4e-5.
TOLERANCE = 2e-5


@cache
def speech_like(num_samples: int, seed: int = 0) -> bytes:
    """Return noise and tones of changing loudness, with one maximum."""
    rng = np.random.default_rng(seed)
    time_s = np.arange(num_samples) / 16_000
    loudness = 0.02 + 0.2 * np.abs(np.sin(0.13 * time_s + seed)) * np.abs(np.sin(2.1 * time_s))
    tones = np.sin(2 * np.pi * (300 + 100 * np.sin(time_s)) * time_s)
    samples = loudness * (tones + 0.3 * rng.standard_normal(num_samples))
    return np.clip(np.rint(samples * 32768), -32768, 32767).astype("<i2").tobytes()


@cache
def expected_features(num_samples: int, num_mel_bins: int) -> np.ndarray:
    """Return the whole recording's features by transformers, ``[bins, frames]``."""
    samples = np.frombuffer(speech_like(num_samples), "<i2") / np.float32(32768)
    extractor = WhisperFeatureExtractor(feature_size=num_mel_bins)
    whole = {"truncation": False, "padding": "longest"} if num_samples > WINDOW else {}
    return np.asarray(extractor(samples, sampling_rate=16_000, **whole)["input_features"][0])


def window_of(features: np.ndarray, start_frame: int) -> np.ndarray:
    window = features[:, start_frame : start_frame + 3_000]
    return np.pad(window, ((0, 0), (0, 3_000 - window.shape[1])))


def feed(recording: Recording, pcm: bytes, sizes: list[int], start_sample: int = 0) -> None:
    position = start_sample * 2
    for size in sizes:
        if position >= len(pcm):
            break
        recording.append(AudioChunk(position // 2, pcm[position : position + 2 * size]))
        position = min(position + 2 * size, len(pcm))
    recording.append(AudioChunk(position // 2, pcm[position:], is_last=True))


LENGTHS = [1, 159, 201, 479_760, WINDOW - 1, WINDOW, WINDOW + 1, WINDOW + 199, 700_000, 1_000_123, 1_440_000]


@settings(max_examples=50, deadline=None)
@given(
    num_samples=st.sampled_from(LENGTHS) | st.integers(1, WINDOW),
    num_mel_bins=st.sampled_from([80, 128]),
    sizes=st.lists(st.integers(1, 200_000), max_size=12),
    position=st.floats(0, 1),
)
def test_windows_equal_those_of_transformers(num_samples, num_mel_bins, sizes, position):
    """A recording of at most 30 s needs no maximum: its first window has it."""
    expected = expected_features(num_samples, num_mel_bins)
    pcm = speech_like(num_samples)
    blocks = (pcm[start : start + 30_002] for start in range(0, len(pcm), 30_002))
    recording = Recording(log_mel_max(blocks, [num_mel_bins]) if num_samples > WINDOW else None)
    feed(recording, pcm, sizes)
    assert recording.total_frames == expected.shape[1]
    for start_frame in (0, int(position * (expected.shape[1] - 1)) // 2 * 2):
        features = recording.window_features(start_frame, num_mel_bins)
        assert features.dtype == np.float32
        np.testing.assert_allclose(features, window_of(expected, start_frame), atol=TOLERANCE)


@pytest.mark.parametrize("num_samples", [1, 159, 201, 100_000, WINDOW, WINDOW + 159, 700_000])
def test_windows_with_zeros_after_the_audio_equal_those_of_openai_whisper(num_samples):
    """Openai/whisper transforms the audio and 30 s of silence, then sets the frames after the audio to 0."""
    samples = np.frombuffer(speech_like(num_samples), "<i2").copy()
    samples[-80:] = 30_000 * np.sin(np.arange(80)[-num_samples:])  # loudest at its end
    padded = np.pad(samples / np.float32(32768), (0, WINDOW))
    extractor = WhisperFeatureExtractor(feature_size=80)
    features = np.asarray(
        extractor(padded, sampling_rate=16_000, truncation=False, padding="longest")["input_features"][0]
    )
    expected = features[:, : max(1, num_samples // 160)]
    pcm = samples.tobytes()
    known = log_mel_max([pcm], [80], Padding.ZERO) if num_samples > WINDOW else None
    recording = Recording(known, Padding.ZERO)
    feed(recording, pcm, [])
    assert recording.total_frames == expected.shape[1]
    for start_frame in range(0, expected.shape[1], 2_998):
        made = recording.window_features(start_frame, 80)
        np.testing.assert_allclose(made, window_of(expected, start_frame), atol=TOLERANCE)
    clip = recording.clip(0, expected.shape[1])
    np.testing.assert_array_equal(clip.window_features(0, 80)[:, expected.shape[1] :], 0)


def test_a_stream_takes_constant_memory_and_has_the_same_features():
    num_samples = 2_000_000
    pcm, expected = speech_like(num_samples), expected_features(num_samples, 80)
    recording = Recording(log_mel_max([pcm], [80]))
    start_frame = position = 0
    while start_frame < expected.shape[1]:
        while not recording.window_is_ready(start_frame):
            end = min(position + 7_001, num_samples)
            recording.append(AudioChunk(position, pcm[2 * position : 2 * end], is_last=end == num_samples))
            position = end
        held = recording.received_samples - recording.first_sample
        assert held <= WINDOW + 2 * CONTEXT_SAMPLES + 7_001
        features = recording.window_features(start_frame, 80)
        np.testing.assert_allclose(features, window_of(expected, start_frame), atol=TOLERANCE)
        start_frame += 1_734
        recording.discard_before(start_frame * 160)


def test_a_window_waits_for_the_context_after_it():
    pcm = speech_like(WINDOW + 40)
    recording = Recording()
    recording.append(AudioChunk(0, pcm[:-2]))
    assert not recording.window_is_ready(0)
    with pytest.raises(InvalidAudio, match="no window at frame 0"):
        recording.window_features(0, 80)
    recording.append(AudioChunk(WINDOW + 39, pcm[-2:]))
    assert recording.window_is_ready(0)
    assert not recording.window_is_ready(2)
    before = recording.window_features(0, 80)
    recording.append(AudioChunk(WINDOW + 40, b"", is_last=True))
    np.testing.assert_array_equal(recording.window_features(0, 80), before)
    assert recording.window_frames(2) == 2_998


def louder_and_louder() -> bytes:
    samples = np.random.default_rng(0).standard_normal(1_600_000) * np.linspace(10, 3_000, 1_600_000)
    return samples.astype("<i2").tobytes()


def test_the_default_maximum_is_that_of_the_audio_up_to_the_window_whatever_was_predicted():
    pcm = louder_and_louder()
    plain, mispredicted = Recording(), Recording()
    for recording in (plain, mispredicted):
        feed(recording, pcm, [])
    assert plain.log_mel_max(0, 80) is None
    mispredicted.window_features(5_000, 80)
    maxima = []
    for start_frame in (0, 1_000, 3_500):
        expected = plain.window_features(start_frame, 80)
        np.testing.assert_array_equal(mispredicted.window_features(start_frame, 80), expected)
        maxima.append(plain.log_mel_max(start_frame, 80))
        assert mispredicted.log_mel_max(start_frame, 80) == maxima[-1]
    assert maxima == sorted(set(maxima))
    assert maxima[-1] == pytest.approx(log_mel_max([pcm[: 2 * 160 * 6_500 + 80]], [80])[80], abs=1e-5)


def test_discarded_audio_counts_for_the_maximum():
    pcm = np.frombuffer(louder_and_louder(), "<i2")[::-1].tobytes()
    recording = Recording()
    feed(recording, pcm, [])
    recording.window_features(0, 80)
    log_mel_max = recording.log_mel_max(0, 80)
    for start_frame in range(3_000, 10_000, 3_000):
        recording.discard_before(start_frame * 160)
        recording.window_features(start_frame, 80)
        assert recording.log_mel_max(start_frame, 80) == log_mel_max


def test_another_recording_continues_from_the_maximum_so_far():
    pcm = louder_and_louder()
    whole, resumed = Recording(), Recording()
    feed(whole, pcm, [])
    for start_frame in (0, 2_500):
        whole.window_features(start_frame, 80)
    feed(resumed, pcm, [50_000], start_sample=2_500 * 160 - CONTEXT_SAMPLES)
    resumed.resume_log_mel_max(80, whole.log_mel_max(2_500, 80))
    for start_frame in (2_500, 4_000):
        expected = whole.window_features(start_frame, 80)
        np.testing.assert_array_equal(resumed.window_features(start_frame, 80), expected)


def test_a_window_outside_the_kept_audio_is_refused():
    pcm = speech_like(700_000)
    recording = Recording()
    feed(recording, pcm, [], start_sample=1_600 - CONTEXT_SAMPLES)
    assert recording.window_features(10, 80).shape == (80, 3_000)
    with pytest.raises(InvalidAudio, match=r"window at frame 8 begins too early.* from sample 1400 "):
        recording.window_features(8, 80)
    for start_frame in (-2, 4_375):
        with pytest.raises(InvalidAudio, match=f"no window at frame {start_frame}"):
            recording.window_features(start_frame, 80)


def test_repeated_audio_is_ignored():
    pcm = speech_like(700_000)
    once, twice = Recording(), Recording()
    feed(once, pcm, [100_000])
    twice.append(AudioChunk(0, pcm[:200_000]))
    twice.append(AudioChunk(0, pcm[:200_000]))
    twice.append(AudioChunk(50_000, pcm[100_000:600_000]))
    for _ in range(2):
        twice.append(AudioChunk(200_000, pcm[400_000:], is_last=True))
    assert twice.received_samples == once.received_samples == 700_000
    np.testing.assert_array_equal(twice.window_features(500, 80), once.window_features(500, 80))


@pytest.mark.parametrize(
    ("chunks", "sentence"),
    [
        ([(0, bytes(20)), (11, bytes(2))], "samples 10 to 11 are missing"),
        ([(0, bytes(20), True), (10, bytes(2))], "after the end of the recording at sample 10"),
        ([(0, bytes(20)), (9, b"", True)], "ends at sample 9, but 10 samples came before"),
        ([(0, b"", True)], "holds no audio samples"),
    ],
)
def test_chunks_that_do_not_fit_are_refused(chunks, sentence):
    recording = Recording()
    for chunk in chunks[:-1]:
        recording.append(AudioChunk(*chunk))
    received = recording.received_samples
    with pytest.raises(InvalidAudio, match=sentence):
        recording.append(AudioChunk(*chunks[-1]))
    assert recording.received_samples == received

"""Speech in recordings: how probable it is, where it is found, what is cut, and how times are restored."""

from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import silero_vad
import torch
from hypothesis import given
from hypothesis import strategies as st

import specwhisper
from experiments.common.models.speech import EnergyVad, talk
from specwhisper.audio import speech as speech_module
from specwhisper.audio.decode import decode_file
from specwhisper.audio.endpointing import FRAME_SAMPLES
from specwhisper.audio.speech import SileroVad, SpeechMap, find_speech, only_speech, spans_of
from specwhisper.selection import VadOptions
from specwhisper.types import SAMPLE_RATE, Segment, Span, Word

SAMPLES = Path(specwhisper.__file__).parent / "demo" / "samples"
ROUNDING_S = 0.005  # times are in hundredths


def of_faster_whisper(audio: np.ndarray, model, options: VadOptions) -> list[tuple[int, int]]:
    """Return the speech that faster-whisper finds with a model that returns probabilities."""
    vad = pytest.importorskip("faster_whisper.vad", exc_type=ImportError)
    wanted = vad.VadOptions(**{name: getattr(options, name) for name in VadOptions.__slots__})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vad, "get_vad_model", lambda: model)
        return [(each["start"], each["end"]) for each in vad.get_speech_timestamps(audio, wanted)]


def samples_of(name: str) -> np.ndarray:
    return np.frombuffer(b"".join(decode_file(SAMPLES / name)), "<i2").astype(np.float32) / 32768


SPEECH = ("01_phone_call.flac", "05_at_the_station.ogg")


def frames_of(name: str) -> np.ndarray:
    """Return a bundled recording, or ten seconds of silence, in frames."""
    samples = np.zeros(10 * SAMPLE_RATE, np.float32) if name == "silence" else samples_of(name)
    num_frames = len(samples) // FRAME_SAMPLES
    return samples[: num_frames * FRAME_SAMPLES].reshape(num_frames, FRAME_SAMPLES)


def reference(frames: np.ndarray) -> list[float]:
    """Return the probabilities of silero-vad's own package."""
    num_threads = torch.get_num_threads()
    model = silero_vad.load_silero_vad(onnx=True)
    torch.set_num_threads(num_threads)  # it sets 1
    return [model(torch.from_numpy(frame.copy()), SAMPLE_RATE).item() for frame in frames]


@pytest.mark.parametrize("name", [*SPEECH, "silence"])
def test_probabilities_are_those_of_silero_vad(name):
    frames, stream = frames_of(name), SileroVad().open()
    probs = np.array([stream(frame) for frame in frames])
    assert np.abs(probs - reference(frames)).max() < 1e-3
    assert (probs > 0.5).mean() > 0.5 or name == "silence"


def test_streams_of_one_model_do_not_touch_each_other():
    recordings = [frames_of(name)[:100] for name in SPEECH]
    vad = SileroVad()
    alone = []
    for frames in recordings:
        stream = vad.open()
        alone.append([stream(frame) for frame in frames])
    streams = [vad.open() for _ in recordings]
    together = [
        [stream(frame) for stream, frame in zip(streams, at_once, strict=True)]
        for at_once in zip(*recordings, strict=True)
    ]
    assert [list(probs) for probs in zip(*together, strict=True)] == alone


PROBABILITIES = st.lists(
    st.tuples(st.sampled_from([0.0, 0.3, 0.36, 0.5, 0.9]), st.integers(1, 12)), max_size=12
).map(lambda runs: [probability for probability, number in runs for _ in range(number)])
VADS = st.builds(
    VadOptions,
    threshold=st.sampled_from([0.3, 0.5]),
    neg_threshold=st.sampled_from([None, 0.1]),
    min_speech_duration_ms=st.sampled_from([0, 100]),
    min_silence_duration_ms=st.sampled_from([0, 50, 200]),
    speech_pad_ms=st.sampled_from([0, 30, 100]),
    max_speech_duration_s=st.sampled_from([0.3, 0.5, float("inf")]),
)


@given(PROBABILITIES, st.integers(1, FRAME_SAMPLES - 1), VADS)
def test_spans_are_in_order_and_those_of_faster_whisper(probabilities, rest, options):
    num_samples = len(probabilities) * FRAME_SAMPLES + rest
    probabilities = [*probabilities, 0.0]
    spans = spans_of(probabilities, num_samples, options)
    assert all(0 <= span.start < span.stop <= num_samples for span in spans)
    assert all(one.stop <= other.start for one, other in pairwise(spans))
    if find_spec("faster_whisper"):
        audio = np.zeros(num_samples, np.float32)
        assert list(spans) == of_faster_whisper(audio, lambda padded: np.array(probabilities), options)


BOUNDARIES = st.lists(st.integers(0, 60 * SAMPLE_RATE), max_size=10, unique=True).map(sorted)


@st.composite
def maps(draw) -> SpeechMap:
    places = draw(BOUNDARIES)
    spans = [Span(*pair) for pair in zip(places[::2], places[1::2], strict=False)]
    return SpeechMap(spans, 60 * SAMPLE_RATE)


@given(
    maps(), st.lists(st.integers(0, 6000).map(lambda hundredth: hundredth / 100), min_size=2), st.booleans()
)
def test_restored_segments_and_words_are_in_order_and_in_speech(speech, times, has_words):
    times = sorted(times)
    segments = [
        Segment(start, end, (1,), words=(Word(start, end, "one"),) if has_words else ())
        for start, end in pairwise(times)
    ]
    restored = [speech.segment(segment) for segment in segments]
    for segment in restored:
        assert segment.start_s <= segment.end_s
        assert all((word.start_s, word.end_s) == (segment.start_s, segment.end_s) for word in segment.words)
    assert all(one.end_s <= other.start_s for one, other in pairwise(restored))
    for time_s in (
        time_s for segment in restored if speech.spans for time_s in (segment.start_s, segment.end_s)
    ):
        assert any(
            span.start / SAMPLE_RATE - ROUNDING_S <= time_s <= span.stop / SAMPLE_RATE + ROUNDING_S
            for span in speech.spans
        )


@given(maps(), st.floats(0, 60), st.booleans())
def test_restored_times_in_speech_are_those_of_faster_whisper(speech, time_s, is_end):
    vad = pytest.importorskip("faster_whisper.vad", exc_type=ImportError)
    if not speech.spans or time_s > speech.speech_s:
        return
    time_s = round(time_s * SAMPLE_RATE) / SAMPLE_RATE
    theirs = vad.SpeechTimestampsMap(
        [{"start": span.start, "end": span.stop} for span in speech.spans], SAMPLE_RATE
    )
    if int(time_s * SAMPLE_RATE) == round(time_s * SAMPLE_RATE):  # it rounds down, which may miss an end
        assert speech.original_s(time_s, is_end=is_end) == pytest.approx(
            theirs.get_original_time(time_s, is_end=is_end), abs=0.0101
        )


def test_times_where_two_spans_meet():
    speech = SpeechMap([Span(SAMPLE_RATE, 3 * SAMPLE_RATE), Span(5 * SAMPLE_RATE, 6 * SAMPLE_RATE)], 160_000)
    assert (speech.duration_s, speech.speech_s) == (10.0, 3.0)
    assert [speech.original_s(time_s) for time_s in (0.0, 1.5, 2.0, 2.5, 9.0)] == [1.0, 2.5, 5.0, 5.5, 6.0]
    assert speech.original_s(2.0, is_end=True) == 3.0
    whole = speech.segment(Segment(0.0, 2.0, (1,), seek=200))
    assert (whole.start_s, whole.end_s, whole.seek) == (1.0, 3.0, 500)
    words = (Word(0.5, 1.9, "one"), Word(1.9, 2.3, "two"))
    spoken = speech.segment(Segment(0.0, 2.5, (1,), words=words))
    assert [(word.start_s, word.end_s) for word in spoken.words] == [(1.5, 2.9), (5.0, 5.3)]
    assert (spoken.start_s, spoken.end_s) == (1.5, 5.3)


@given(st.binary(max_size=400).filter(lambda pcm: len(pcm) % 2 == 0), st.data())
def test_only_speech_is_the_audio_of_the_spans(pcm, data):
    num_samples = len(pcm) // 2
    places = sorted(data.draw(st.sets(st.integers(0, num_samples))))
    spans = [Span(*pair) for pair in zip(places[::2], places[1::2], strict=False)]
    cuts = sorted(data.draw(st.sets(st.integers(0, num_samples))))
    blocks = [pcm[2 * one : 2 * other] for one, other in pairwise([0, *cuts, num_samples])]
    kept = b"".join(only_speech(lambda: iter(blocks), SpeechMap(spans, num_samples)))
    assert kept == b"".join(pcm[2 * span.start : 2 * span.stop] for span in spans)


@pytest.mark.parametrize("block_bytes", [1_024, 30_000])
def test_the_speech_of_audio_in_blocks(monkeypatch, block_bytes):
    monkeypatch.setattr(speech_module, "_model", EnergyVad)
    pcm = talk(((1.0, 2.0), (5.0, 6.5)), 8.0)
    blocks = [pcm[start : start + block_bytes] for start in range(0, len(pcm), block_bytes)]
    options = VadOptions(min_silence_duration_ms=500, speech_pad_ms=100)
    speech = find_speech(blocks, options)
    assert speech.duration_s == 8.0
    starts = [span.start / SAMPLE_RATE for span in speech.spans]
    stops = [span.stop / SAMPLE_RATE for span in speech.spans]
    assert np.allclose(starts, [0.9, 4.9], atol=0.04) and np.allclose(stops, [2.1, 6.6], atol=0.04)
    silence = find_speech([bytes(64_000)], VadOptions())
    assert (silence.spans, silence.duration_s, silence.speech_s) == ((), 2.0, 0.0)

"""The endpointer marks speech from its probability in each frame."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.audio.endpointing import FRAME_SAMPLES, Endpointer
from specwhisper.errors import InvalidRequest
from specwhisper.live import EndpointingOptions
from specwhisper.types import VoiceEvent, VoiceMark

FRAME_MS = 32
MS = 16  # samples
EXACT = EndpointingOptions(
    threshold=0.5,
    prefix_padding_ms=3 * FRAME_MS,
    pause_ms=2 * FRAME_MS,
    silence_duration_ms=4 * FRAME_MS,
    min_speech_ms=2 * FRAME_MS,
)


def marks_of(pattern: str, options: EndpointingOptions = EXACT, start_sample: int = 0) -> list[str]:
    """Return the marks of frames: ``+`` speech, ``-`` silence, ``?`` in between."""
    endpointer = Endpointer(options, start_sample, settling_ms=0)
    probs = {"+": options.threshold, "-": 0.0, "?": options.threshold - 0.01}
    return [
        f"{frame}: {mark.event} {mark.sample / FRAME_SAMPLES:g}"
        for frame, kind in enumerate(pattern)
        for mark in endpointer.on_vad_probability(probs[kind])
    ]


def test_an_utterance_begins_before_its_first_sound_pauses_and_ends():
    assert marks_of("-----+++---------") == ["6: begin 2", "9: pause 10", "11: end 10"]


def test_speech_begins_once_after_a_pause():
    assert marks_of("++--++---++----") == [
        "1: begin 0",
        "3: pause 4",
        "4: begin 4",
        "7: pause 8",
        "9: begin 9",
        "12: pause 13",
        "14: end 13",
    ]


def test_an_utterance_begins_after_the_end_of_the_one_before():
    at_once = 5 + 1 / FRAME_SAMPLES  # its padding would reach back to frame 4
    assert marks_of("+++----++") == ["1: begin 0", "4: pause 5", "6: end 5", f"8: begin {at_once:g}"]


def test_a_short_noise_is_no_speech():
    assert marks_of("+-+-+-----+--") == []
    assert marks_of("-+-++") == ["4: begin 0"]


def test_a_probability_between_speech_and_silence_changes_nothing():
    assert marks_of("?" * 50) == []
    assert marks_of("++" + "?" * 50) == ["1: begin 0"]
    assert marks_of("++-??-") == ["1: begin 0", "5: pause 4", "5: end 4"]
    assert marks_of("+?+") == ["2: begin 0"]


def test_marks_count_from_the_start_sample():
    assert marks_of("++----", start_sample=100 * FRAME_SAMPLES) == [
        "1: begin 97",
        "3: pause 104",
        "5: end 104",
    ]
    assert marks_of("++", start_sample=FRAME_SAMPLES) == ["1: begin 0"]


def test_speech_that_begins_with_the_stream_must_last_longer():
    endpointer = Endpointer(EXACT)
    assert [endpointer.on_vad_probability(1.0) for _ in range(7)] == [[]] * 7
    assert endpointer.on_vad_probability(1.0) == [VoiceMark(VoiceEvent.BEGIN, 0)]


def test_pause_and_end_may_fall_together():
    options = EndpointingOptions(
        prefix_padding_ms=0, pause_ms=64, silence_duration_ms=64, min_speech_ms=0, threshold=0.5
    )
    assert marks_of("+---+--", options) == [
        "0: begin 0",
        "2: pause 3",
        "2: end 3",
        "4: begin 4",
        "6: pause 7",
        "6: end 7",
    ]


@pytest.mark.parametrize("threshold", [0.05, 0.1, 0.15, 0.5, 0.95])
def test_silence_ends_an_utterance_at_any_threshold(threshold):
    endpointer = Endpointer(EndpointingOptions(threshold=threshold), settling_ms=0)
    marks = [mark.event for prob in [1.0] * 10 + [0.0] * 40 for mark in endpointer.on_vad_probability(prob)]
    assert marks == [VoiceEvent.BEGIN, VoiceEvent.PAUSE, VoiceEvent.END]


def test_a_probability_of_nan_changes_nothing():
    endpointer = Endpointer(EXACT, settling_ms=0)
    probs = [1.0, float("nan"), 1.0, float("nan"), 0.0]
    assert [mark for prob in probs for mark in endpointer.on_vad_probability(prob)] == [
        VoiceMark(VoiceEvent.BEGIN, 0)
    ]


options = st.builds(
    lambda threshold, padding, pause, more, speech: EndpointingOptions(
        threshold=threshold,
        prefix_padding_ms=padding,
        pause_ms=pause,
        silence_duration_ms=min(10_000, pause + more),
        min_speech_ms=speech,
    ),
    st.sampled_from([0.05, 0.3, 0.5, 0.95]),
    st.integers(0, 2_000),
    st.integers(32, 400),
    st.integers(0, 400),
    st.integers(0, 2_000),
)
# Constant levels over many frames, so that there are utterances for all options.
levels = st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.45, 0.6, 1.0]), st.integers(1, 40)), max_size=12)


@given(options=options, levels=levels, start_frame=st.integers(0, 100))
def test_marks_are_in_order_and_within_the_audio(options, levels, start_frame):
    start = start_frame * FRAME_SAMPLES
    endpointer = Endpointer(options, start, settling_ms=0)
    end_sample, is_speech, has_paused, last_end = start, False, False, -1
    num_loud = num_silent = 0
    for prob, length in levels:
        for _ in range(length):
            end_sample += FRAME_SAMPLES
            num_loud = num_loud + 1 if prob >= options.threshold else num_loud
            num_silent = 0 if prob >= options.threshold else num_silent + 1
            for mark in endpointer.on_vad_probability(prob):
                assert 0 <= mark.sample <= end_sample
                match mark.event:
                    case VoiceEvent.BEGIN if is_speech:
                        assert has_paused and num_silent == 0
                        has_paused = False
                    case VoiceEvent.BEGIN:
                        assert prob >= options.threshold
                        assert mark.sample > last_end
                        shortest = options.min_speech_ms * MS - (mark.sample == last_end + 1)
                        assert end_sample - mark.sample >= min(end_sample, shortest)
                        is_speech, has_paused = True, False
                    case VoiceEvent.PAUSE:
                        assert is_speech and not has_paused
                        assert num_silent * FRAME_MS >= options.pause_ms
                        has_paused = True
                    case VoiceEvent.END:
                        assert is_speech and has_paused
                        assert num_silent * FRAME_MS >= options.silence_duration_ms
                        assert mark.sample >= last_end
                        is_speech, has_paused, last_end = False, False, mark.sample
    assert num_loud or not is_speech


@given(options=options, levels=levels)
def test_enough_silence_ends_any_utterance(options, levels):
    endpointer = Endpointer(options, settling_ms=0)
    probs = [prob for prob, length in levels for _ in range(length)]
    silence = [0.0] * (options.silence_duration_ms // FRAME_MS + 2)
    marks = [mark.event for prob in [*probs, *silence] for mark in endpointer.on_vad_probability(prob)]
    assert marks[-1:] in ([], [VoiceEvent.END])
    speech = [1.0] * (options.min_speech_ms // FRAME_MS + 1)
    assert VoiceEvent.BEGIN in [mark.event for prob in speech for mark in endpointer.on_vad_probability(prob)]


@pytest.mark.parametrize(
    ("field", "value", "lowest"),
    [
        ("threshold", 0.04, "0.05"),
        ("threshold", 0.96, "0.05"),
        ("threshold", float("nan"), "0.05"),
        ("prefix_padding_ms", -1, "0"),
        ("prefix_padding_ms", 2_001, "0"),
        ("pause_ms", 31, "32"),
        ("silence_duration_ms", 10_001, "32"),
        ("sentence_silence_ms", 31, "32"),
        ("min_speech_ms", 2_001, "0"),
    ],
)
def test_options_outside_their_bounds_are_refused(field, value, lowest):
    with pytest.raises(InvalidRequest, match=f"{field} is {value:g}: it must lie between {lowest} and"):
        EndpointingOptions(**{field: value})


SENTENCES = EndpointingOptions(
    prefix_padding_ms=0,
    pause_ms=2 * FRAME_MS,
    sentence_silence_ms=3 * FRAME_MS,
    silence_duration_ms=9 * FRAME_MS,
    min_speech_ms=2 * FRAME_MS,
)


@pytest.mark.parametrize(
    ("options", "known_to", "end_frame"),
    [
        (SENTENCES, None, 12),  # the text ends no sentence
        (SENTENCES, 3, 12),  # it ends one, of audio before the last word
        (SENTENCES, 4, 6),
        (SENTENCES, 6, 6),
        (replace(SENTENCES, sentence_silence_ms=None), 4, 12),
    ],
)
def test_an_utterance_ends_sooner_after_a_sentence(options, known_to, end_frame):
    endpointer = Endpointer(options, settling_ms=0)
    marks = {}
    for frame in range(14):
        endpointer.sentence_end_sample = None if known_to is None else known_to * FRAME_SAMPLES
        marks[frame] = [mark.event for mark in endpointer.on_vad_probability(1.0 if frame < 4 else 0.0)]
    assert [frame for frame, events in marks.items() if VoiceEvent.END in events] == [end_frame]
    assert marks[5] == [VoiceEvent.PAUSE]


def test_a_sentence_that_becomes_known_late_ends_the_utterance_then():
    endpointer = Endpointer(SENTENCES, settling_ms=0)
    for prob in [1.0] * 4 + [0.0] * 6:
        assert VoiceEvent.END not in [mark.event for mark in endpointer.on_vad_probability(prob)]
    endpointer.sentence_end_sample = 6 * FRAME_SAMPLES
    assert endpointer.on_vad_probability(0.0) == [VoiceMark(VoiceEvent.END, 6 * FRAME_SAMPLES)]


def test_a_silence_after_a_sentence_lies_between_the_other_two():
    with pytest.raises(InvalidRequest, match="pause_ms is 200: it must be at most sentence_silence_ms"):
        EndpointingOptions(sentence_silence_ms=100)
    with pytest.raises(InvalidRequest, match="sentence_silence_ms is 501: it must be at most silence_dur"):
        EndpointingOptions(sentence_silence_ms=501)


def test_a_pause_longer_than_the_silence_that_ends_is_refused():
    with pytest.raises(InvalidRequest, match="pause_ms is 501: it must be at most silence_duration_ms"):
        EndpointingOptions(pause_ms=501)

"""The endpointer marks utterances by the probability of speech, and starts anew at boundaries."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.audio.endpointing import FRAME_SAMPLES, STEP_SAMPLES, Endpointer
from specwhisper.live import EndpointingOptions
from specwhisper.types import VoiceEvent, VoiceMark

FRAME_MS = 32
MS = 16  # samples
EXACT = EndpointingOptions(
    threshold=0.5,
    prefix_padding_ms=3 * FRAME_MS,
    silence_duration_ms=4 * FRAME_MS,
    short_silence_ms=4 * FRAME_MS,
    min_utterance_ms=0,
    min_speech_ms=2 * FRAME_MS,
)


def run(
    levels: list[float],
    options: EndpointingOptions | None = EXACT,
    start_sample: int = 0,
    *,
    is_speech: bool = False,
    settling_ms: int = 0,
) -> list[tuple[int, VoiceMark, int, bool]]:
    """Return each mark with the number of samples that it took, and boundary and state after it.

    Levels are those of the audio's frames, from 0; a frame from a boundary within one has that one's level.
    """
    endpointer = Endpointer(options, start_sample, is_speech=is_speech, settling_ms=settling_ms)
    at, known, found = start_sample, 0, []
    while at + FRAME_SAMPLES <= len(levels) * FRAME_SAMPLES:
        before = endpointer.boundary_sample
        mark = endpointer.on_frame(levels[at // FRAME_SAMPLES])
        at += FRAME_SAMPLES
        known = max(known, at)
        if mark is not None:
            found.append((known, mark, endpointer.boundary_sample, endpointer.is_speech))
        if endpointer.boundary_sample != before:
            assert before < endpointer.boundary_sample <= at
            at = endpointer.boundary_sample
    return found


def marks_of(pattern: str, options: EndpointingOptions | None = EXACT, **more) -> list[str]:
    """Return the marks of frames, in frames: ``+`` speech, ``-`` silence, ``?`` in between."""
    levels = [{"+": 1.0, "-": 0.0, "?": 0.49}[kind] for kind in pattern]
    return [
        f"{known / FRAME_SAMPLES:.1f}: {mark.event} {mark.sample / FRAME_SAMPLES:.1f}"
        for known, mark, *_ in run(levels, options, **more)
    ]


CUTTING = replace(EXACT, max_piece_ms=2_016)  # 63 frames; cuts are in the last 42
SHORT = replace(EXACT, min_utterance_ms=4 * FRAME_MS, short_silence_ms=8 * FRAME_MS)
NEVER_LONG = replace(EXACT, min_utterance_ms=30_000, short_silence_ms=8 * FRAME_MS)
# Marks lie on timestamps, 0.625 frames: 2 frames are 1.9 of them, 12 are 11.9.
MARKS = {
    "begins before its sound, ends in silence": (
        "-----+++---------",
        EXACT,
        ["7.0: begin 1.9", "12.0: end 11.9"],
    ),
    "reaches 200 ms into a long silence": (
        "++++" + 30 * "-",
        replace(EXACT, silence_duration_ms=20 * FRAME_MS),
        ["2.0: begin 0.0", "24.0: end 10.0"],
    ),
    "begins after the end before": (
        "+++----+++",
        EXACT,
        ["2.0: begin 0.0", "7.0: end 6.9", "9.9: begin 6.9"],
    ),
    "a short one needs a longer silence": ("+++" + 9 * "-", SHORT, ["2.0: begin 0.0", "11.0: end 8.8"]),
    "a longer one does not": ("++++" + 9 * "-", SHORT, ["2.0: begin 0.0", "8.0: end 7.5"]),
    "it continues": ("+++----++----", SHORT, ["2.0: begin 0.0", "13.0: end 12.5"]),
    "never a shorter silence": (
        "+++----",
        replace(SHORT, short_silence_ms=FRAME_MS),
        ["2.0: begin 0.0", "7.0: end 6.9"],
    ),
    "noises": ("+-+-+-----+--", EXACT, []),
    "a noise, then speech": ("-+-++", EXACT, ["5.0: begin 0.0"]),
    "in between": ("?" * 50, EXACT, []),
    "in between after speech": ("++" + "?" * 50, EXACT, ["2.0: begin 0.0"]),
    "in between in silence": ("++-??-", EXACT, ["2.0: begin 0.0", "6.0: end 5.6"]),
    "in between before speech": ("+?+", EXACT, ["3.0: begin 0.0"]),
    "cut in its longest pause": (
        30 * "+" + "--" + 10 * "+" + "---" + 30 * "+",
        CUTTING,
        ["2.0: begin 0.0", "63.0: cut 43.1"],
    ),
    "a pause too early to cut": (
        10 * "+" + "---" + 60 * "+",
        CUTTING,
        ["2.0: begin 0.0", "63.0: cut 60.0"],
    ),
    "no cut in a silence that may end it": (
        61 * "+" + 4 * "-",
        CUTTING,
        ["2.0: begin 0.0", "65.0: end 65.0"],
    ),
    "a cut after that silence": (61 * "+" + "---+", CUTTING, ["2.0: begin 0.0", "65.0: cut 61.9"]),
    "no endpointing": ("---", None, ["1.0: begin 0.0"]),
}


@pytest.mark.parametrize("case", MARKS)
def test_frames_lead_to_marks(case):
    pattern, options, expected = MARKS[case]
    assert marks_of(pattern, options) == expected


def test_an_utterance_that_was_cut_is_never_short_and_does_not_begin_again():
    assert marks_of("----", NEVER_LONG, is_speech=True) == ["4.0: end 3.8"]
    assert marks_of("---", None, is_speech=True) == []


def test_speech_that_begins_with_the_stream_must_last_longer():
    assert marks_of("+" * 7, settling_ms=320) == []
    assert marks_of("+" * 8, settling_ms=320) == ["8.0: begin 0.0"]


def test_a_long_silence_that_may_end_the_utterance_is_cut_before_the_window_is_full():
    options = EndpointingOptions(max_piece_ms=28_000, silence_duration_ms=10_000, min_speech_ms=0)
    (_, (known, cut, *_), *_) = run(840 * [1.0] + 400 * [0.0], options)
    assert cut.event is VoiceEvent.CUT and cut.sample <= 28_000 * MS
    assert known <= (28_300 + FRAME_MS) * MS


def test_in_silence_the_boundary_moves_on():
    endpointer = Endpointer(EXACT)
    moved = []
    for frame in range(400):
        assert endpointer.on_frame(0.0) is None
        if endpointer.boundary_sample not in moved:
            moved.append(endpointer.boundary_sample)
            end_sample = moved[-2] + (frame + 1) * FRAME_SAMPLES if len(moved) > 1 else 0
    assert moved[:3] == [0, 64_000, 128_000]
    assert end_sample > moved[-1] + EXACT.prefix_padding_ms * MS


def test_a_client_ends_an_utterance():
    endpointer = Endpointer(EXACT, settling_ms=0)
    assert endpointer.end_utterance(100_000) == [], "there is none"
    endpointer.on_frame(1.0)
    assert endpointer.end_utterance(600) == [VoiceMark(VoiceEvent.BEGIN, 0), VoiceMark(VoiceEvent.BREAK, 320)]
    assert (endpointer.boundary_sample, endpointer.is_speech) == (320, False)
    assert endpointer.end_utterance(700) == []
    for _ in range(2):
        mark = endpointer.on_frame(1.0)
    assert mark == VoiceMark(VoiceEvent.BEGIN, 320)
    endpointer.on_frame(0.0)
    assert endpointer.end_utterance(2_250) == [VoiceMark(VoiceEvent.END, 2_240)], "silence has begun"
    endpointer = Endpointer(EXACT, 480, is_speech=True)
    assert endpointer.end_utterance(490) == [VoiceMark(VoiceEvent.BREAK, 480)], "at once after a cut"


class TestNoEndpointing:
    """All audio is one utterance; levels are its loudness."""

    def test_it_begins_at_once_and_is_cut_where_it_is_quietest(self):
        frames = EndpointingOptions().max_piece_ms // FRAME_MS
        levels = [0.0] * 100 + [0.5] * (frames - 100)
        levels[200:210] = 10 * [0.01]
        levels[250:256] = 6 * [0.01]
        found = [mark for _, mark, *_ in run(levels, None, 320)]
        assert found == [VoiceMark(VoiceEvent.BEGIN, 320)], "a frame is missing"
        found = [mark for _, mark, *_ in run([*levels, 0.5], None)]
        assert found == [
            VoiceMark(VoiceEvent.BEGIN, 0),
            VoiceMark(VoiceEvent.CUT, 205 * FRAME_SAMPLES // 320 * 320),
        ]

    def test_less_than_a_frame_is_an_utterance_too(self):
        endpointer = Endpointer(None, 1_600)
        assert endpointer.end_utterance(1_900) == []
        assert endpointer.end_utterance(1_920) == [
            VoiceMark(VoiceEvent.BEGIN, 1_600),
            VoiceMark(VoiceEvent.BREAK, 1_920),
        ]


options = st.builds(
    EndpointingOptions,
    threshold=st.sampled_from([0.05, 0.1, 0.15, 0.3, 0.5, 0.95]),
    prefix_padding_ms=st.integers(0, 2_000),
    silence_duration_ms=st.integers(32, 800),
    short_silence_ms=st.integers(32, 2_000),
    min_utterance_ms=st.integers(0, 5_000),
    max_piece_ms=st.integers(2_000, 5_000),
    min_speech_ms=st.integers(0, 2_000),
)
# Constant levels over many frames, so that there are utterances for all options.
levels = st.lists(
    st.tuples(st.sampled_from([0.0, 0.2, 0.45, 0.6, 1.0]), st.integers(1, 60)), max_size=12
).map(lambda runs: [level for level, length in runs for _ in range(length)])


@given(options=options | st.none(), levels=levels)
def test_marks_are_in_order_and_within_the_audio(options, levels):
    is_open, last, begin = False, 0, 0
    longest = (EndpointingOptions() if options is None else options).max_piece_ms * MS
    for known, mark, boundary, is_speech in run(levels, options, settling_ms=320):
        assert mark.sample % STEP_SAMPLES == 0
        assert last <= mark.sample <= known
        assert is_open == (mark.event is not VoiceEvent.BEGIN)
        is_open, last = mark.event is not VoiceEvent.END, mark.sample
        if mark.event is VoiceEvent.BEGIN:
            assert boundary <= mark.sample and not is_speech
            begin = mark.sample
            continue
        assert (boundary, is_speech) == (mark.sample, is_open)
        assert 0 < mark.sample - begin
        if mark.event is VoiceEvent.CUT:
            assert longest // 3 - STEP_SAMPLES <= mark.sample - begin <= longest <= known - begin
        elif longest > (options.min_speech_ms + options.prefix_padding_ms) * MS + FRAME_SAMPLES:
            assert mark.sample - begin <= longest + FRAME_SAMPLES + 200 * MS
        begin = mark.sample


@given(options=options | st.none(), levels=levels)
def test_an_endpointer_that_continues_at_any_boundary_finds_the_same_later_marks(options, levels):
    found = run(levels, options, settling_ms=320)
    for index, (_, mark, boundary, is_speech) in enumerate(found):
        later = run(levels, options, boundary, is_speech=is_speech, settling_ms=320)
        first = index + (mark.event is not VoiceEvent.BEGIN)
        assert [mark for _, mark, *_ in later] == [mark for _, mark, *_ in found[first:]]


@given(options=options, levels=levels)
def test_enough_silence_ends_any_utterance(options, levels):
    silent = [0.0] * (max(options.silence_duration_ms, options.short_silence_ms) // FRAME_MS + 60)
    found = run(levels + silent, options)
    assert [mark.event for _, mark, *_ in found[-1:]] in ([], [VoiceEvent.END])
    speech = [1.0] * (options.min_speech_ms // FRAME_MS + 2)
    after = [mark.event for _, mark, *_ in run(levels + silent + speech, options)[len(found) :]]
    assert after[:1] == [VoiceEvent.BEGIN]

"""Windows are cut as transformers cuts them; nothing begins before the end of what is before it."""

import re
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import WhisperForConditionalGeneration

from experiments.common.models.scripted import END, NO_TIMESTAMPS, TIME, VOCABULARY
from specwhisper.audio.speech import SpeechMap, placed
from specwhisper.options import Task
from specwhisper.transcription.formats import (
    Layout,
    cues,
    to_diarized_json,
    to_srt,
    to_tsv,
    to_verbose_json,
    to_vtt,
)
from specwhisper.transcription.segments import Borders, around_words, split_window
from specwhisper.transcription.speakers import Turn, with_speakers
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import (
    HOP_SAMPLES,
    SAMPLE_RATE,
    Commit,
    Segment,
    Span,
    TimeOrder,
    Window,
    WindowOpened,
    Word,
    WordAlignment,
)
from tests.nightly import examples

LAYOUTS = [
    None,
    Layout(max_words_per_line=2),
    Layout(max_line_width=3, max_line_count=2),
    Layout(highlight_words=True),
]
POSITIONS = st.integers(0, 1500)  # timestamps, and ends of words: 20 ms each


@st.composite
def windows(draw: st.DrawFn) -> list[tuple[WindowOpened, Commit]]:
    """Return consecutive windows, whose words lie anywhere in them."""
    found, start_frame = [], 0
    for number in range(draw(st.integers(1, 5))):
        times = sorted(draw(st.lists(POSITIONS, min_size=2, max_size=8)))
        tokens = []
        for begin, end in zip(times[::2], times[1::2], strict=False):
            text = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
            tokens += [TIME + begin, *text, TIME + end]
        tokens += draw(st.sampled_from([[], [tokens[-1]], [tokens[-1], 1]]))
        spoken = [position for position, token in enumerate(tokens) if token < END]
        ends = sorted(draw(st.lists(POSITIONS, min_size=len(spoken) + 1, max_size=len(spoken) + 1)))
        samples = [start_frame * HOP_SAMPLES + end * 2 * HOP_SAMPLES for end in ends]
        words = tuple(
            WordAlignment(position, 1, *times)
            for position, times in zip(spoken, pairwise(samples), strict=True)
        )
        window = Window(number, start_frame, 3000, (END + 1,), 60)
        written = (*tokens, END)
        has_words = draw(st.booleans())
        commit = Commit(
            number, 0, written, (-0.1,) * len(written), is_final=True, words=words if has_words else ()
        )
        found.append((WindowOpened(window), commit))
        start_frame += split_window(window, written, VOCABULARY).advance_frames
    return found


def transcribed(messages: list[tuple[WindowOpened, Commit]]) -> list[Segment]:
    builder = TranscriptBuilder(VOCABULARY)
    return [
        segment
        for opened, commit in messages
        for segment in (*builder.observe(opened), *builder.observe(commit))
    ]


def check_order(times: list[tuple[float, float]]) -> None:
    assert all(start <= end for start, end in times)
    assert all(one[1] <= other[0] for one, other in pairwise(times))


def times_of(pieces: list[dict[str, float]]) -> list[tuple[float, float]]:
    return [(each["start"], each["end"]) for each in pieces]


def clock_times(subtitles: str) -> list[tuple[float, float]]:
    found = re.findall(r"(\d+):(\d+):(\d+)[.,](\d+)", subtitles)
    at_s = [
        int(hours) * 3600 + int(minutes) * 60 + int(f"{seconds}{ms}") / 1000
        for hours, minutes, seconds, ms in found
    ]
    return list(zip(at_s[::2], at_s[1::2], strict=True))


@settings(max_examples=examples(40, 1000))
@given(windows(), st.sampled_from([None, Span(16_000, 400_000)]), st.booleans())
def test_times_are_in_order_in_every_format(messages, speech, has_speakers) -> None:
    segments = transcribed(messages)
    if speech is not None:
        gaps = [speech, Span(600_000, 700_000), Span(1_000_000, 9_000_000)]
        segments = TimeOrder()(placed(segments, SpeechMap(gaps, 9_000_000)))
    if has_speakers:
        segments = with_speakers(segments, [Turn(i, i + 1.0, "AB"[i % 2]) for i in range(150)])
    check_order([(each.start_s, each.end_s) for each in segments])
    check_order([(word.start_s, word.end_s) for each in segments for word in each.words])
    for layout in LAYOUTS:
        check_order([(cue.start_s, cue.end_s) for cue in cues(segments, layout)])
        check_order(clock_times(to_srt(segments, layout)))
        check_order(clock_times(to_vtt(segments, layout)))
    rows = [line.split("\t") for line in to_tsv(segments).splitlines()[1:]]
    check_order([(int(start), int(end)) for start, end, _ in rows])
    verbose = to_verbose_json(segments, language="english", duration_s=150.0)
    check_order(times_of(verbose["segments"]))
    check_order(times_of(verbose.get("words", [])))
    diarized = to_diarized_json(segments, duration_s=150.0, task=Task.TRANSCRIBE)
    check_order(times_of(diarized["segments"]))


@settings(max_examples=examples(40, 1000))
@given(windows(), st.integers(0, 5))
def test_a_recording_that_another_server_continues_has_the_same_segments(messages, num_before) -> None:
    whole = transcribed(messages)
    cut = [split_window(opened.window, commit.tokens, VOCABULARY).segments for opened, commit in messages]
    expected = [segment for window in cut for segment in window]
    assert [(s.tokens, s.seek) for s in whole] == [(s.tokens, s.seek) for s in expected]
    borders = Borders()
    resumed = [
        segment
        for part in (messages[:num_before], messages[num_before:])
        for segment in borders(transcribed(part))
    ]
    assert resumed == whole


def segment(text: str, seek: int, *words: Word) -> Segment:
    return Segment(words[0].start_s, words[-1].end_s, (1, 2), text, seek=seek, words=words)


@pytest.mark.parametrize(
    ("last", "first", "is_same"),
    [
        (Word(26.0, 26.2, " them."), Word(26.0, 26.7, " him."), True),
        (Word(53.16, 53.36, " its"), Word(53.2, 53.6, " Its"), True),
        (Word(26.0, 26.2, " them."), Word(26.3, 26.7, " them."), False),  # it is said twice
        (Word(25.7, 26.0, " them."), Word(26.0, 26.7, " them."), False),
        (Word(81.38, 81.58, " man."), Word(81.4, 82.66, " unless"), False),
        (Word(81.38, 81.58, " man."), Word(81.4, 82.66, " Yes."), False),
    ],
)
def test_a_word_of_two_windows_is_written_once(last: Word, first: Word, is_same: bool) -> None:
    border_s = 26.0 if last.start_s < 30 else 53.2 if last.start_s < 60 else 81.4
    next_word = Word(first.end_s, first.end_s + 1, " He")
    before, after = Borders()(
        [
            segment(f" for{last.text}", 0, Word(25.0, last.start_s, " for"), last),
            segment(f"{first.text} He", round(border_s * 100), first, next_word),
        ]
    )
    assert before.text == f" for{last.text}"
    assert after.text == (" He" if is_same else f"{first.text} He")
    assert [word.text for word in after.words] == ([" He"] if is_same else [first.text, " He"])
    assert after.words[0].start_s >= last.end_s


def test_a_word_does_not_last_through_the_silence_after_its_window() -> None:
    builder = TranscriptBuilder(VOCABULARY)
    builder.observe(WindowOpened(Window(0, 0, 3000, (END + 1,), 60)))
    tokens = (TIME, 0, TIME + 100, TIME + 100, END)  # two seconds, where the next window begins
    words = (WordAlignment(1, 1, SAMPLE_RATE, 9 * SAMPLE_RATE),)
    (only,) = builder.observe(Commit(0, 0, tokens, (0.0,) * 5, is_final=True, words=words))
    assert (only.words[0].start_s, only.words[0].end_s) == (1.0, 2.0)


@given(st.data(), st.lists(st.tuples(POSITIONS, POSITIONS), min_size=1, max_size=4))
def test_a_segment_lasts_from_its_first_word_to_its_last(data, spans) -> None:
    num_times = 4 * len(spans)  # of two words a segment
    times = iter(sorted(data.draw(st.lists(POSITIONS, min_size=num_times, max_size=num_times))))
    segments = [
        Segment(min(span), max(span), (1,), words=tuple(Word(next(times), next(times), "a") for _ in "ab"))
        for span in spans
    ]
    placed = TimeOrder()(around_words(segments))
    assert [each.words for each in placed] == [each.words for each in segments]
    check_order([(each.start_s, each.end_s) for each in placed])
    for each in placed:
        assert all(each.start_s <= word.start_s <= word.end_s <= each.end_s for word in each.words)


def window(num_frames: int = 3000, start_frame: int = 0) -> Window:
    return Window(0, start_frame, num_frames, prompt=(END + 1,), max_new_tokens=60)


def cut(tokens: list[int], num_frames: int = 3000, start_frame: int = 0):
    result = split_window(window(num_frames, start_frame), tokens, VOCABULARY)
    segments = [(s.start_s, s.end_s, list(s.tokens)) for s in result.segments]
    return segments, result.advance_frames, list(result.discarded)


def transformers_cut(tokens: list[int], num_frames: int, start_frame: int):
    segments, advance = WhisperForConditionalGeneration._retrieve_segment(
        seek_sequence=torch.tensor(tokens, dtype=torch.long),
        seek_outputs=[None],
        time_offset=torch.tensor([start_frame * 0.01], dtype=torch.float64),
        timestamp_begin=TIME,
        seek_num_frames=torch.tensor([num_frames]),
        time_precision=0.02,
        time_precision_features=0.01,
        input_stride=2,
        prev_idx=0,
        idx=0,
        return_token_timestamps=False,
        decoder_input_ids=torch.tensor([[END + 1]]),
    )
    return segments, int(advance)


text = st.integers(0, END - 1)
times = st.integers(TIME, TIME + 1500)
pair = times.map(lambda token: [token, token])
legal = st.lists(st.one_of(text.map(lambda token: [token]), pair, times.map(lambda t: [t]))).map(
    lambda pieces: [token for piece in pieces for token in piece]
)
anything = st.lists(st.one_of(text, times, st.just(TIME), st.just(NO_TIMESTAMPS)), max_size=12)


@settings(max_examples=examples(100, 500))
@given(
    tokens=st.one_of(legal, anything),
    num_frames=st.integers(1, 3000),
    start_frame=st.integers(0, 100_000),
    ended=st.booleans(),
)
def test_segments_equal_transformers(tokens, num_frames, start_frame, ended):
    expected, advance = transformers_cut(tokens, num_frames, start_frame)
    segments, ours, discarded = cut(tokens + [END] * ended, num_frames, start_frame)
    assert [tokens for *_, tokens in segments] == [segment["tokens"].tolist() for segment in expected]
    for (start_s, end_s, _), segment in zip(segments, expected, strict=True):
        # transformers begins a segment before its window if the window has times but begins with text.
        assert start_s == pytest.approx(max(float(segment["start"]), start_frame * 0.01), abs=1e-3)
        # Without times a segment ends with its window; there int(214 * 0.01 / 0.02) is 106 in transformers.
        is_windows_end = end_s == pytest.approx((start_frame + num_frames) * 0.01)
        assert end_s == pytest.approx(float(segment["end"]), abs=0.0201 if is_windows_end else 1e-3)
    assert ours == (advance or num_frames)  # transformers would decode the same window forever
    assert [token for *_, tokens in segments for token in tokens] + discarded == tokens

"""Windows are cut into segments as transformers cuts them, for any tokens."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import WhisperForConditionalGeneration

from experiments.common.models.scripted import END, NO_TIMESTAMPS, TIME, VOCABULARY
from specwhisper.transcription.segments import split_window
from specwhisper.types import Window
from tests.nightly import examples

A, B = 0, 1


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


def test_a_window_without_times_is_one_segment():
    assert cut([A, B, END]) == ([(0.0, 30.0, [A, B])], 3000, [])
    assert cut([A, B], num_frames=700, start_frame=600) == ([(6.0, 13.0, [A, B])], 700, [])

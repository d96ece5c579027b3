"""The draft predicts the window of a recording that the target opens next."""

from __future__ import annotations

from dataclasses import replace

from experiments.common.models.speech import SPOKEN
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live.windows import follow_windows
from specwhisper.transcription.sequential_windows import SequentialWindows
from specwhisper.types import SAMPLE_RATE, WINDOW_FRAMES, AudioChunk, Commit, Step, Window
from tests.live import BEGIN, END, mark, token_ids


class Audio:
    """A recording of which the next window is complete up to frame 500."""

    received_samples = 0

    def window_is_ready(self, start_frame: int) -> bool:
        return start_frame <= 500

    def window_frames(self, start_frame: int) -> int:
        return WINDOW_FRAMES


def test_the_next_window_begins_at_the_last_timestamps():
    made = follow_windows(SPOKEN, DecodingOptions.greedy())
    assert isinstance(made, SequentialWindows)
    audio = Audio()
    window = Window(0, 0, WINDOW_FRAMES, (SPOKEN.start_of_transcript,), 40)
    assert made.predict_next(token_ids("AB."), audio) is None
    made.on_window_opened(window)
    assert made.predict_next(token_ids("AB"), audio) is None  # it continues
    predicted = made.predict_next(token_ids(0.0, "AB", 2.0, 2.0, "C."), audio)
    assert predicted == (replace(window, id=1, start_frame=200), ())
    assert made.predict_next(token_ids(0.0, "AB", 9.0, 9.0, "C."), audio)[0].num_frames == 0  # not there yet
    made.on_commit(Commit(0, 0, (), is_final=True))
    assert made.predict_next(token_ids(0.0, "AB", 2.0, 2.0, "C."), audio) is None
    assert made.needed_from == 0


def test_a_window_prompted_with_the_text_before_cannot_be_predicted():
    made = follow_windows(SPOKEN, DecodingOptions.greedy(condition_on_previous_text=True))
    made.on_window_opened(Window(0, 100, WINDOW_FRAMES, (SPOKEN.start_of_transcript,), 40))
    assert made.predict_next(token_ids(0.0, "AB", 2.0, 2.0, "C."), Audio()) is None
    assert made.needed_from == SAMPLE_RATE


def test_marks_and_steps_do_not_affect_a_recording():
    made = follow_windows(SPOKEN, DecodingOptions.greedy())
    made.on_window_opened(Window(0, 100, WINDOW_FRAMES, (SPOKEN.start_of_transcript,), 40))
    made.append_audio(AudioChunk(0, b"", marks=(mark(BEGIN, 3), mark(END, 4))), 10 * SAMPLE_RATE)
    made.on_commit(Commit(0, 0, (), step=Step(1, 0, True)))
    assert made.needed_from == SAMPLE_RATE

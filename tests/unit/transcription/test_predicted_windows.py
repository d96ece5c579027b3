"""The draft predicts the window that the target opens next on the same audio."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.common.models.scripted import END, NUM_TEXT, TIME
from experiments.common.models.speech import SPOKEN
from specwhisper.audio.recording import CONTEXT_SAMPLES
from specwhisper.live import LiveOptions, LivePosition
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live.windows import LiveWindows, follow_windows
from specwhisper.transcription.sequential_windows import SequentialWindows
from specwhisper.transcription.windows import PredictedWindow
from specwhisper.types import (
    SAMPLE_RATE,
    WINDOW_FRAMES,
    AudioChunk,
    Commit,
    Step,
    VoiceMark,
    Window,
)
from tests.live import BEGIN, ENDED, ScriptedWindows, mark, token_ids
from tests.nightly import examples


class Followed(ScriptedWindows):
    """Live windows of a target, and those of a draft that follow them."""

    def __init__(self, live: LiveOptions | None = None, **options) -> None:
        live = live or LiveOptions()
        super().__init__(live, **options)
        made = follow_windows(SPOKEN, DecodingOptions.greedy(live=live, **options))
        assert isinstance(made, LiveWindows)
        self.draft = made

    def append(self, to_s, *marks, is_last=False) -> None:
        super().append(to_s, *marks, is_last=is_last)
        self.draft.append_audio(AudioChunk(0, b"", is_last, marks), self.received_samples)

    def open(self) -> Window:
        window = super().open()
        self.draft.on_window_opened(window)
        return window

    def close(self, tokens, **judged):
        closed = super().close(tokens, **judged)
        self.draft.on_commit(Commit(self.opened.id, 0, tuple(tokens), is_final=True, step=closed.step))
        return closed

    def predict(self, tokens=()) -> PredictedWindow | None:
        return self.draft.predict_next(tokens, self)


class TestLive:
    def test_the_next_step_is_predicted_as_soon_as_its_audio_has_arrived(self):
        followed = Followed()
        followed.append(0.6, mark(BEGIN, 0))
        assert followed.predict() is None  # of the first one only the target knows the prompt
        window = followed.open()
        assert followed.predict() is None
        followed.append(1.0)
        predicted, expected = followed.predict(token_ids(0.0, "AB", 0.4, "."))
        assert expected == token_ids(0.0, "AB")
        assert predicted == replace(window, id=1, num_frames=100)
        followed.close(token_ids("AB."))
        followed.append(1.5)
        assert followed.predict()[0].num_frames == followed.ready == 150

    def test_the_last_steps_text_is_predicted_only_with_reused_candidates(self):
        followed = Followed(LiveOptions(reuses_candidates=False))
        followed.append(0.5, mark(BEGIN, 0))
        followed.open()
        followed.append(1.0)
        assert followed.predict(token_ids("AB"))[1] == ()

    def test_the_next_utterance_is_predicted_once_the_last_one_is_complete(self):
        followed = Followed()
        followed.append(1.0, mark(BEGIN, 0), mark(ENDED, 1.0))
        followed.open()
        followed.append(3.0, mark(BEGIN, 2.0))
        assert followed.predict() is None
        followed.close(token_ids("AB."))
        predicted, expected = followed.predict(token_ids("AB"))
        assert (predicted.start_frame, predicted.num_frames, expected) == (200, 100, ())

    def test_a_window_prompted_with_the_text_before_is_not_predicted(self):
        followed = Followed(condition_on_previous_text=True)
        followed.append(1.0, mark(BEGIN, 0), mark(ENDED, 1.0))
        followed.step("AB.")
        followed.append(3.0, mark(BEGIN, 2.0))
        assert followed.predict() is None
        followed.open()
        followed.append(4.0)
        assert followed.predict()[0].num_frames == 200  # but within an utterance it is known

    def test_a_retried_window_is_not_predicted_and_the_next_is_no_retry(self):
        options = {"compression_ratio_threshold": 1.0, "temperatures": (0.0, 0.5)}
        followed = Followed(**options)
        followed.append(5.0, mark(BEGIN, 0), mark(ENDED, 4.0), mark(BEGIN, 4.5))
        for _ in range(2):
            assert followed.predict() is None
            followed.step("AB" * 20)
        predicted, _ = followed.predict()
        assert (predicted.temperature, predicted.attempt, predicted.start_frame) == (0.0, 0, 450)

    def test_in_silence_five_seconds_are_needed_and_in_speech_the_window(self):
        followed = Followed()
        followed.append(3_600)
        assert followed.draft.needed_from == 3_595 * SAMPLE_RATE
        followed.append(3_601, mark(BEGIN, 3_600))
        assert followed.draft.needed_from == 3_600 * SAMPLE_RATE
        followed.open()
        followed.append(3_605, mark(ENDED, 3_604))
        assert followed.draft.needed_from == 3_600 * SAMPLE_RATE

    @pytest.mark.parametrize("begin_s", [10.0, 10.6, 14.0])
    def test_a_session_that_continues_needs_its_window_when_speech_begins(self, begin_s):
        live = LiveOptions(position=LivePosition(10 * SAMPLE_RATE, final_tokens=token_ids("AB")))
        followed = Followed(live)
        followed.append(14.5, mark(BEGIN, begin_s))
        assert followed.draft.needed_from == 10 * SAMPLE_RATE
        assert followed.open().start_sample == 10 * SAMPLE_RATE
        assert followed.draft.needed_from == 10 * SAMPLE_RATE

    def test_a_session_that_continues_in_silence_frees_its_audio(self):
        followed = Followed(
            LiveOptions(position=LivePosition(10 * SAMPLE_RATE, final_tokens=token_ids("AB")))
        )
        for second in range(11, 60):
            followed.append(second)
        assert followed.draft.needed_from == 54 * SAMPLE_RATE == followed.windows.next_frame * 160


hypotheses = st.lists(
    st.one_of(st.integers(0, 3), st.integers(0, NUM_TEXT - 1), st.integers(TIME, TIME + 200)), max_size=8
)


@settings(max_examples=examples(by_day=25, at_night=200))
@given(
    data=st.data(),
    step_ms=st.sampled_from([100, 500, 2_000]),
    trim_ms=st.sampled_from([1_000, 28_000]),
    condition=st.booleans(),
    temperatures=st.sampled_from([(0.0,), (0.0, 0.3)]),
    position=st.tuples(st.sampled_from([0, 1_600]), st.sampled_from([(), (0, 1)])),
)
def test_predicted_windows_are_those_that_are_opened(
    data, step_ms, trim_ms, condition, temperatures, position
):
    """Except after a cut and for a retry. The draft keeps the audio of every window."""
    followed = Followed(
        LiveOptions(
            step_ms=step_ms,
            trim_ms=trim_ms,
            position=LivePosition(position[0], final_tokens=tuple(position[1])),
        ),
        temperatures=temperatures,
        condition_on_previous_text=condition,
        compression_ratio_threshold=1.5,
    )
    at, text, expected = position[0], [], ()
    was_cut = False
    for _ in range(data.draw(st.integers(1, 15))):
        at += data.draw(st.sampled_from([0, 1_600, 5_000, 8_000, 40_000, 480_000]))
        events = st.builds(
            VoiceMark,
            st.sampled_from([BEGIN, BEGIN, ENDED, ENDED]),
            st.sampled_from([at, at - 1_000, at - 9_000, at - 100_000, at + 500]),
        )
        followed.append(at / SAMPLE_RATE, *data.draw(st.lists(events, max_size=3)))
        if not followed.ready or data.draw(st.booleans()):
            continue
        is_retry = followed.windows._retry is not None
        predicted = followed.predict(text)
        needed_from = followed.draft.needed_from
        window = followed.open()
        assert needed_from - CONTEXT_SAMPLES <= window.start_sample
        if predicted is not None and not was_cut and not is_retry:
            assert predicted[0] == replace(window, max_new_tokens=predicted[0].max_new_tokens)
            assert predicted[1] == expected
        text = [*text[: data.draw(st.integers(0, len(text)))], *data.draw(hypotheses), END]
        is_exhausted = followed.windows._progress.is_exhausted
        closed = followed.close(text, log_probs=[-0.1])
        expected = closed.opening
        is_done = closed.step is not None and closed.step.is_last
        # A cut stays unknown until the next window is opened; so does it that an utterance begins in one,
        # also after the last window of an utterance that was cut where it ended.
        has_moved = followed.windows.next_frame != window.start_frame
        was_cut = window.num_frames == WINDOW_FRAMES or is_exhausted if is_done else has_moved


def test_all_steps_are_predicted_but_the_first_and_the_end_after_a_pause():
    """The property above would hold for a draft that predicts no window."""
    followed = Followed(LiveOptions(step_ms=500))
    not_predicted, num_opened = [], 0
    for tenth in range(1, 100):
        marks = [mark(BEGIN, 0.5)] if tenth == 6 else []
        marks += [mark(ENDED, 4.3)] if tenth == 48 else []
        marks += [mark(BEGIN, 6.0)] if tenth == 61 else []
        followed.append(tenth / 10, *marks)
        if followed.ready:
            predicted = followed.predict(token_ids("A"))
            window = followed.open()
            num_opened += 1
            if predicted is None:
                not_predicted.append((window.id, window.start_frame + window.num_frames))
            else:
                assert predicted[0] == replace(window, max_new_tokens=predicted[0].max_new_tokens)
            followed.close(token_ids("A."))
    assert (num_opened, not_predicted) == (16, [(0, 100), (8, 430)])


class TestRecordings:
    def test_the_next_window_begins_at_the_last_timestamps(self):
        made = follow_windows(SPOKEN, DecodingOptions.greedy())
        assert isinstance(made, SequentialWindows)
        audio = ScriptedWindows()
        audio.window_is_ready = lambda start_frame: start_frame <= 500
        audio.window_frames = lambda start_frame: WINDOW_FRAMES
        window = Window(0, 0, WINDOW_FRAMES, (SPOKEN.start_of_transcript,), 40)
        assert made.predict_next(token_ids("AB."), audio) is None
        made.on_window_opened(window)
        assert made.predict_next(token_ids("AB"), audio) is None  # it continues
        predicted = made.predict_next(token_ids(0.0, "AB", 2.0, 2.0, "C."), audio)
        assert predicted == (replace(window, id=1, start_frame=200), ())
        assert (
            made.predict_next(token_ids(0.0, "AB", 9.0, 9.0, "C."), audio)[0].num_frames == 0
        )  # not there yet
        made.on_commit(Commit(0, 0, (), is_final=True))
        assert made.predict_next(token_ids(0.0, "AB", 2.0, 2.0, "C."), audio) is None
        assert made.needed_from == 0

    def test_a_window_prompted_with_the_text_before_cannot_be_predicted(self):
        made = follow_windows(SPOKEN, DecodingOptions.greedy(condition_on_previous_text=True))
        made.on_window_opened(Window(0, 100, WINDOW_FRAMES, (SPOKEN.start_of_transcript,), 40))
        assert made.predict_next(token_ids(0.0, "AB", 2.0, 2.0, "C."), ScriptedWindows()) is None
        assert made.needed_from == SAMPLE_RATE

    def test_marks_and_steps_do_not_affect_a_recording(self):
        made = follow_windows(SPOKEN, DecodingOptions.greedy())
        made.on_window_opened(Window(0, 100, WINDOW_FRAMES, (SPOKEN.start_of_transcript,), 40))
        made.append_audio(AudioChunk(0, b"", marks=(mark(BEGIN, 3), mark(ENDED, 4))), 10 * SAMPLE_RATE)
        made.on_commit(Commit(0, 0, (), step=Step(1, 0, 0, True)))
        assert made.needed_from == SAMPLE_RATE

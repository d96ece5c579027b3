"""Live windows: which audio is decoded, and which text becomes final."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.live import LiveOptions
from specwhisper.transcription.live.windows import MAX_TOKENS
from specwhisper.types import Outcome
from tests.live import BEGIN, ENDED, ScriptedWindows, letters, mark, token_ids

REPETITION_FAILS = {"compression_ratio_threshold": 2.0, "compression_ratio_of": "text"}
LOOP = "AB" * 40


class TestWhen:
    def test_a_step_is_decoded_once_its_audio_is_complete(self):
        scripted = ScriptedWindows()
        scripted.append(0.49, mark(BEGIN, 0))
        assert scripted.ready is None
        scripted.append(0.5)
        assert scripted.extent_s == (0, 0.5)
        scripted.step("A.")
        assert scripted.ready is None
        scripted.append(0.99)
        assert scripted.ready is None

    def test_a_late_target_skips_the_steps_that_it_missed(self):
        scripted = ScriptedWindows()
        scripted.append(0.5, mark(BEGIN, 0))
        scripted.open()
        scripted.append(3.3)
        scripted.close(token_ids("A."))
        assert scripted.extent_s == (0, 3.0)

    def test_steps_are_counted_from_the_start_of_the_utterance(self):
        scripted = ScriptedWindows(LiveOptions(step_ms=1_000))
        scripted.append(2.0, mark(BEGIN, 0.705))
        assert scripted.extent_s == (0.7, 1.7)

    def test_silence_is_never_decoded(self):
        scripted = ScriptedWindows()
        for second in range(1, 7_200):
            scripted.append(second)
            assert scripted.ready is None
            assert second - scripted.windows.next_frame / 100 <= 5
        scripted.append(7_200, is_last=True)
        assert scripted.ready == 0

    def test_the_end_of_the_audio_ends_the_utterance(self):
        scripted = ScriptedWindows()
        scripted.append(0.2, mark(BEGIN, 0), is_last=True)
        assert scripted.extent_s == (0, 0.2)
        assert scripted.step("A.").step.is_last
        assert scripted.ready == 0

    def test_utterances_wait_for_a_late_target(self):
        scripted = ScriptedWindows()
        scripted.append(1.0, mark(BEGIN, 0))
        scripted.open()
        scripted.append(9.0, mark(ENDED, 1.5), mark(BEGIN, 2), mark(ENDED, 3), mark(BEGIN, 8))
        assert not scripted.close(token_ids("A.")).step.is_last
        spans = []
        for word in "ABC":
            spans.append(scripted.extent_s)
            step = scripted.step(word + ".").step
        assert spans == [(0, 1.5), (2, 3), (8, 9)]
        assert (step.utterance, step.is_last) == (3, False)
        assert (scripted.text(1), scripted.text(2), scripted.text(3)) == ("A", "B", "")

    def test_later_marks_do_not_change_an_open_window(self):
        scripted = ScriptedWindows()
        scripted.append(1.0, mark(BEGIN, 0))
        window = scripted.open()
        scripted.append(5.0, mark(ENDED, 0.3), mark(BEGIN, 3))
        assert scripted.close(token_ids("A.")).step.is_last  # it reached beyond the end
        assert (window.start_frame, window.num_frames) == (0, 100)
        assert scripted.extent_s == (3, 5)

    def test_an_utterance_shorter_than_a_frame_is_ignored(self):
        scripted = ScriptedWindows()
        scripted.append(0.005, mark(BEGIN, 0), is_last=True)
        assert scripted.ready == 0

    def test_closing_without_an_utterance_is_an_error(self):
        scripted = ScriptedWindows()
        scripted.append(1.0, mark(BEGIN, 0))
        window = scripted.open()
        scripted.append(1.0, is_last=True)
        scripted.close(token_ids("A."))
        with pytest.raises(RuntimeError, match="Window 0 was closed without an utterance"):
            scripted.windows.close(window, token_ids("A."))


class TestAgreement:
    def test_text_on_which_two_steps_agree_is_final(self):
        scripted = ScriptedWindows()
        scripted.append(0.5, mark(BEGIN, 0))
        scripted.step(0.0, "AB", 0.4, ".")
        assert scripted.text() == ""
        scripted.append(1.0)
        closed = scripted.step(0.0, "ABC", 0.8, ".")
        assert scripted.text() == "AB"
        assert closed.opening == token_ids(0.0, "ABC")
        assert (closed.step.final_start, closed.step.final_end) == (1, 3)
        scripted.append(1.5)
        scripted.step(0.0, "ABCD.")
        assert scripted.text() == "ABC"
        assert scripted.windows.num_final == 3

    def test_final_text_is_never_taken_back(self):
        scripted = ScriptedWindows()
        for number, text in enumerate(["AB.", "ABC.", "XBCD.", "BCD.", "AXBCDE."], start=1):
            scripted.append(number * 0.5, mark(BEGIN, 0))
            before = scripted.text()
            scripted.step(text.replace("X", "M"))
            assert scripted.text().startswith(before)
        scripted.append(2.5, is_last=True)
        scripted.step("MBCDEF.")
        assert scripted.text() == "ABCDEF"

    def test_half_a_word_is_not_final(self):
        scripted = ScriptedWindows()
        scripted.append(0.5, mark(BEGIN, 0))
        scripted.step("AsBt.")
        scripted.append(1.0)
        scripted.step("AsBu.")
        assert letters(scripted.final[1]) == "As"

    def test_at_the_end_all_text_is_final(self):
        scripted = ScriptedWindows()
        scripted.append(0.5, mark(BEGIN, 0), mark(ENDED, 0.5))
        closed = scripted.step(0.0, "ABC", 0.4, ".")
        assert (scripted.text(), scripted.windows.num_final, closed.opening) == ("ABC", 0, ())
        assert (closed.step.utterance, closed.step.is_last) == (1, True)

    def test_without_reused_candidates_the_text_is_the_same(self):
        scripted = ScriptedWindows(
            LiveOptions(reuses_candidates=False), temperatures=(0.0, 0.5), **REPETITION_FAILS
        )
        scripted.append(0.5, mark(BEGIN, 0))
        assert scripted.step("AB.").opening == ()
        scripted.append(1.0)
        scripted.step("ABC.")
        assert scripted.text() == "AB"
        scripted.append(5.0, is_last=True)
        closed = scripted.step(LOOP)
        assert (closed.outcome, closed.opening) == (Outcome.RETRIED, ())


class TestFailures:
    def test_a_step_that_fails_during_speech_is_skipped_and_not_retried(self):
        scripted = ScriptedWindows(temperatures=(0.0, 0.5), **REPETITION_FAILS)
        scripted.append(5.0, mark(BEGIN, 0))
        scripted.step("A B C.")
        scripted.append(5.5)
        closed = scripted.step(LOOP)
        assert (closed.outcome, closed.opening, scripted.text()) == (Outcome.SKIPPED, (), "")
        assert scripted.ready is None
        scripted.append(6.0)
        assert scripted.open().attempt == 0
        scripted.close(token_ids("ABC."))
        assert scripted.text() == ""  # two in a row must agree
        scripted.append(6.5)
        scripted.step("ABC.")
        assert scripted.text() == "ABC"

    def test_silence_makes_no_text_final(self):
        scripted = ScriptedWindows(no_speech_threshold=0.5)
        scripted.append(1.0, mark(BEGIN, 0), mark(ENDED, 1.0))
        closed = scripted.step("ABC.", no_speech_prob=0.9)
        assert (closed.outcome, closed.step.is_last, scripted.text()) == (Outcome.SKIPPED, True, "")

    def test_at_the_end_every_temperature_is_tried_and_the_last_is_kept(self):
        scripted = ScriptedWindows(temperatures=(0.0, 0.4, 0.8), **REPETITION_FAILS)
        scripted.append(5.0, mark(BEGIN, 0), mark(ENDED, 5.0))
        windows = []
        for _ in range(2):
            windows.append(scripted.open())
            closed = scripted.close(token_ids(LOOP))
            assert (closed.outcome, closed.step, closed.opening) == (Outcome.RETRIED, None, token_ids(LOOP))
        windows.append(scripted.open())
        closed = scripted.close(token_ids(LOOP))
        assert (closed.outcome, closed.step.is_last, scripted.text()) == (Outcome.KEPT, True, LOOP)
        assert [(w.id, w.attempt, w.temperature) for w in windows] == [(0, 0, 0), (1, 1, 0.4), (2, 2, 0.8)]
        assert len({(w.start_frame, w.num_frames, w.prompt, w.max_new_tokens) for w in windows}) == 1

    def test_a_full_window_is_tried_at_every_temperature(self):
        scripted = ScriptedWindows(temperatures=(0.0, 0.4), **REPETITION_FAILS)
        scripted.append(0.1, mark(BEGIN, 0))
        scripted.append(40.0)
        assert scripted.step(LOOP).outcome is Outcome.RETRIED
        assert scripted.open().attempt == 1
        scripted.close(token_ids("ABC."))
        assert scripted.text() == "ABC"
        assert scripted.extent_s == (30, 40)

    @given(num_frames=st.integers(1, 3_000))
    def test_the_tokens_of_a_window_are_limited_by_its_length(self, num_frames):
        scripted = ScriptedWindows()
        scripted.append(0.001, mark(BEGIN, 0))
        scripted.append(num_frames / 100, is_last=True)
        window = scripted.open()
        assert window.num_frames == num_frames
        assert window.max_new_tokens == min(447, MAX_TOKENS + num_frames // 4)

    def test_a_smaller_limit_of_the_caller_applies(self):
        scripted = ScriptedWindows(max_new_tokens=20)
        scripted.append(10.0, mark(BEGIN, 0))
        assert scripted.open().max_new_tokens == 20


class TestLongUtterances:
    def test_a_long_window_is_cut_after_the_last_final_sentence(self):
        scripted = ScriptedWindows(LiveOptions(trim_ms=2_000))
        scripted.append(2.5, mark(BEGIN, 0))
        scripted.step(0.0, "AB", 1.0, 1.0, "CD.")
        scripted.append(3.0)
        closed = scripted.step(0.0, "AB", 1.0, 1.0, "CDE", 2.9, ".")
        assert scripted.text() == "ABCD"
        assert closed.opening == token_ids(0.0, "CDE")
        assert scripted.windows.num_final == 2
        scripted.append(3.5)
        assert scripted.extent_s == (1.0, 3.5)
        scripted.step(0.0, "CDEF.")
        scripted.append(4.0, is_last=True)
        scripted.step(0.0, "CDEFG.")
        assert scripted.text() == "ABCDEFG"

    def test_a_short_window_is_not_cut(self):
        scripted = ScriptedWindows(LiveOptions(trim_ms=3_000))
        scripted.append(2.5, mark(BEGIN, 0))
        scripted.step(0.0, "AB", 1.0, 1.0, "CD.")
        scripted.append(3.0)
        scripted.step(0.0, "AB", 1.0, 1.0, "CDE.")
        assert scripted.windows.next_frame == 0

    def test_timestamps_after_the_window_do_not_cut_it(self):
        scripted = ScriptedWindows(LiveOptions(trim_ms=1_000))
        scripted.append(2.5, mark(BEGIN, 0))
        scripted.step(0.0, "AB", 9.0, 9.0, "CD.")
        scripted.append(3.0)
        scripted.step(0.0, "AB", 9.0, 9.0, "CDE.")
        assert (scripted.windows.next_frame, scripted.text()) == (0, "ABCD")

    def test_a_cut_in_reworded_text_loses_and_repeats_no_word(self):
        """The rest of the final text follows the cut, whatever its number of tokens."""
        scripted = ScriptedWindows(LiveOptions(trim_ms=2_000))
        scripted.append(1.5, mark(BEGIN, 0))
        scripted.step(0.0, "BCDEFG.")
        scripted.append(2.0)
        scripted.step(0.0, "BCDEFG.")
        scripted.append(2.5)
        scripted.step(0.0, "A", 0.5, 0.5, "MNBCDEFGH.")
        assert scripted.text() == "BCDEFG"
        scripted.append(3.0)
        scripted.step(0.0, "A", 0.5, 0.5, "MNBCDEFGH.")  # more words after the cut than are final in all
        assert (scripted.text(), scripted.windows.next_frame) == ("BCDEFGH", 50)
        scripted.append(3.5, is_last=True)
        scripted.step(0.0, "BCDEFGHI.")
        assert scripted.text() == "BCDEFGHI"

    def test_a_full_window_is_final_and_the_next_begins_after_it(self):
        scripted = ScriptedWindows(LiveOptions(trim_ms=28_000))
        scripted.append(1.0, mark(BEGIN, 1))
        scripted.append(100)
        assert scripted.extent_s == (1, 31)
        closed = scripted.step(0.0, "ABC", 10.0, 10.0, "DEs.")
        assert (scripted.text(), scripted.windows.num_final, closed.opening) == ("ABCDEs", 0, ())
        assert not closed.step.is_last
        assert scripted.extent_s == (31, 61)

    @pytest.mark.parametrize("trim_ms", [2_000, 28_000])
    def test_an_utterance_that_ends_with_a_cut_has_no_more_text(self, trim_ms):
        """A last window reports the end; it decodes old audio, and its text is ignored."""
        scripted = ScriptedWindows(LiveOptions(trim_ms=trim_ms))
        end_s = 30 if trim_ms == 28_000 else 3
        scripted.append(0.1, mark(BEGIN, 0))
        scripted.append(end_s - 0.5)
        scripted.step(0.0, "AB", end_s, end_s, "C.")
        scripted.append(end_s)
        scripted.step(0.0, "AB", end_s, end_s, "C.")
        scripted.append(end_s, is_last=True)
        begin_s, reached_s = scripted.extent_s
        assert 0 <= begin_s < reached_s <= end_s
        closed = scripted.step("D")
        assert scripted.opened.max_new_tokens == 1
        assert closed.step.is_last
        assert scripted.text() == "ABC"
        assert scripted.ready == 0

    def test_an_exhausted_utterance_ends_without_more_text(self):
        scripted = ScriptedWindows(LiveOptions(trim_ms=28_000), temperatures=(0.0, 0.5), **REPETITION_FAILS)
        scripted.append(1.1, mark(BEGIN, 1))
        scripted.append(31.0)
        scripted.step("AB.")
        scripted.append(31.4, mark(ENDED, 30.99), mark(BEGIN, 31.2))
        assert scripted.step(LOOP).step.is_last  # its text is not judged
        assert scripted.text() == "AB"
        scripted.append(32.0)
        assert scripted.step("C.").step.utterance == 2

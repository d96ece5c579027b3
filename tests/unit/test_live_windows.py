"""Live windows: which audio is decoded, and which text becomes final."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.common.models.scripted import END, NUM_TEXT, TIME
from experiments.common.models.speech import NUM_WORDS, SPOKEN, SPOKEN_MULTILINGUAL
from specwhisper.errors import InvalidRequest
from specwhisper.live import LiveOptions, LivePosition, StabilityPolicy
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live_windows import MAX_TOKENS, LiveWindows
from specwhisper.transcription.prompting import PromptText
from specwhisper.types import HOP_SAMPLES, SAMPLE_RATE, WINDOW_FRAMES, Outcome
from tests.live import BEGIN, ENDED, PAUSE, ScriptedWindows, Speaker, letters, mark, token_ids

LOUD = {"compression_ratio_threshold": 2.0, "compression_ratio_of": "text"}
LOOP = "AB" * 40
ALIGN_ATT = LiveOptions(policy=StabilityPolicy.ALIGN_ATT, margin_ms=400)


def extent(scripted: ScriptedWindows) -> tuple[float, float]:
    """Return where the window that is ready begins and ends, in seconds."""
    num_frames = scripted.ready
    assert num_frames
    return scripted.windows.next_frame / 100, (scripted.windows.next_frame + num_frames) / 100


class TestWhen:
    def test_a_step_is_decoded_once_its_audio_is_complete(self):
        scripted = ScriptedWindows()
        scripted.append(0.49, mark(BEGIN, 0))
        assert scripted.ready is None
        scripted.append(0.5)
        assert extent(scripted) == (0, 0.5)
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
        assert extent(scripted) == (0, 3.0)

    def test_steps_are_counted_from_the_start_of_the_utterance(self):
        scripted = ScriptedWindows(LiveOptions(step_ms=1_000))
        scripted.append(2.0, mark(BEGIN, 0.705))
        assert extent(scripted) == (0.7, 1.7)

    def test_a_pause_is_decoded_at_once_and_only_once(self):
        scripted = ScriptedWindows()
        scripted.append(1.4, mark(BEGIN, 0), mark(PAUSE, 1.23))
        assert extent(scripted) == (0, 1.23)
        scripted.step("A.")
        scripted.append(3.0)
        assert scripted.ready is None
        scripted.append(3.0, mark(BEGIN, 3.0))
        assert extent(scripted) == (0, 3.0)

    def test_the_end_is_decoded_even_if_the_pause_was(self):
        scripted = ScriptedWindows()
        scripted.append(1.4, mark(BEGIN, 0), mark(PAUSE, 1.23))
        scripted.step("AB.")
        scripted.append(1.8, mark(ENDED, 1.23))
        assert extent(scripted) == (0, 1.23)
        assert scripted.open().num_frames == 123
        closed = scripted.close(token_ids("AB."))
        assert closed.step.is_last
        assert scripted.text() == "AB"

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
        assert extent(scripted) == (0, 0.2)
        assert scripted.step("A.").step.is_last
        assert scripted.ready == 0

    def test_utterances_wait_for_a_late_target(self):
        scripted = ScriptedWindows()
        scripted.append(1.0, mark(BEGIN, 0))
        scripted.open()
        scripted.append(9.0, mark(ENDED, 1.5), mark(BEGIN, 2), mark(PAUSE, 3), mark(ENDED, 3), mark(BEGIN, 8))
        assert not scripted.close(token_ids("A.")).step.is_last
        spans = []
        for word in "ABC":
            spans.append(extent(scripted))
            step = scripted.step(word + ".").step
        assert spans == [(0, 1.5), (2, 3), (8, 9)]
        assert (step.utterance, step.is_last) == (3, False)
        assert (scripted.text(1), scripted.text(2), scripted.text(3)) == ("A", "B", "")

    def test_later_marks_do_not_change_an_open_window(self):
        scripted = ScriptedWindows()
        scripted.append(1.0, mark(BEGIN, 0))
        window = scripted.open()
        scripted.append(5.0, mark(PAUSE, 0.3), mark(ENDED, 0.3), mark(BEGIN, 3))
        assert scripted.close(token_ids("A.")).step.is_last  # it reached beyond the end
        assert (window.start_frame, window.num_frames) == (0, 100)
        assert extent(scripted) == (3, 5)

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
        assert closed.reused == token_ids(0.0, "ABC")
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
        assert (scripted.text(), scripted.windows.num_final, closed.reused) == ("ABC", 0, ())
        assert (closed.step.utterance, closed.step.is_last) == (1, True)

    def test_without_reused_candidates_the_text_is_the_same(self):
        scripted = ScriptedWindows(LiveOptions(reuses_candidates=False), temperatures=(0.0, 0.5), **LOUD)
        scripted.append(0.5, mark(BEGIN, 0))
        assert scripted.step("AB.").reused == ()
        scripted.append(1.0)
        scripted.step("ABC.")
        assert scripted.text() == "AB"
        scripted.append(5.0, is_last=True)
        closed = scripted.step(LOOP)
        assert (closed.outcome, closed.reused) == (Outcome.RETRIED, ())


class TestAttention:
    def test_words_that_do_not_attend_to_the_end_are_final_at_once(self):
        scripted = ScriptedWindows(ALIGN_ATT)
        assert scripted.windows.attends
        scripted.append(1.0, mark(BEGIN, 0))
        scripted.step(0.0, "ABC", 0.9, ".", attended_ms=[100, 600, 601])
        assert scripted.text() == "AB"

    def test_attention_of_final_text_does_not_matter(self):
        scripted = ScriptedWindows(ALIGN_ATT)
        scripted.append(1.0, mark(BEGIN, 0))
        scripted.step("AB.", attended_ms=[100, 200])
        scripted.append(2.0)
        scripted.step("ABCD.", attended_ms=[1_900, 1_900, 1_500, 1_900])
        assert scripted.text() == "ABC"

    @pytest.mark.parametrize("judged", [{"no_speech_prob": 0.9}, {"log_probs": [-5.0]}])
    def test_a_failed_window_makes_no_text_final_whatever_its_attention(self, judged):
        scripted = ScriptedWindows(ALIGN_ATT, no_speech_threshold=0.5, logprob_threshold=-1.0)
        scripted.append(1.0, mark(BEGIN, 0))
        step = scripted.step("ABC.", attended_ms=[100, 200, 900], **{"log_probs": [-5.0]} | judged).step
        assert (step.final_start, step.final_end, scripted.text()) == (0, 0, "")


class TestFailures:
    def test_a_step_that_fails_during_speech_is_skipped_and_not_retried(self):
        scripted = ScriptedWindows(temperatures=(0.0, 0.5), **LOUD)
        scripted.append(5.0, mark(BEGIN, 0))
        scripted.step("A B C.")
        scripted.append(5.5)
        closed = scripted.step(LOOP)
        assert (closed.outcome, closed.reused, scripted.text()) == (Outcome.SKIPPED, (), "")
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
        scripted = ScriptedWindows(temperatures=(0.0, 0.4, 0.8), **LOUD)
        scripted.append(5.0, mark(BEGIN, 0), mark(ENDED, 5.0))
        windows = []
        for _ in range(2):
            windows.append(scripted.open())
            closed = scripted.close(token_ids(LOOP))
            assert (closed.outcome, closed.step, closed.reused) == (Outcome.RETRIED, None, token_ids(LOOP))
        windows.append(scripted.open())
        closed = scripted.close(token_ids(LOOP))
        assert (closed.outcome, closed.step.is_last, scripted.text()) == (Outcome.KEPT, True, LOOP)
        assert [(w.id, w.attempt, w.temperature) for w in windows] == [(0, 0, 0), (1, 1, 0.4), (2, 2, 0.8)]
        assert len({(w.start_frame, w.num_frames, w.prompt, w.max_new_tokens) for w in windows}) == 1

    def test_a_full_window_is_tried_at_every_temperature(self):
        scripted = ScriptedWindows(temperatures=(0.0, 0.4), **LOUD)
        scripted.append(0.1, mark(BEGIN, 0))
        scripted.append(40.0)
        assert scripted.step(LOOP).outcome is Outcome.RETRIED
        assert scripted.open().attempt == 1
        scripted.close(token_ids("ABC."))
        assert scripted.text() == "ABC"
        assert extent(scripted) == (30, 40)

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
        assert closed.reused == token_ids(0.0, "CDE")
        assert scripted.windows.num_final == 2
        scripted.append(3.5)
        assert extent(scripted) == (1.0, 3.5)
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
        assert extent(scripted) == (1, 31)
        closed = scripted.step(0.0, "ABC", 10.0, 10.0, "DEs.")
        assert (scripted.text(), scripted.windows.num_final, closed.reused) == ("ABCDEs", 0, ())
        assert not closed.step.is_last
        assert extent(scripted) == (31, 61)

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
        begin_s, reached_s = extent(scripted)
        assert 0 <= begin_s < reached_s <= end_s
        closed = scripted.step("D")
        assert scripted.opened.max_new_tokens == 1
        assert closed.step.is_last
        assert scripted.text() == "ABC"
        assert scripted.ready == 0

    def test_an_exhausted_utterance_ends_without_more_text(self):
        scripted = ScriptedWindows(LiveOptions(trim_ms=28_000), temperatures=(0.0, 0.5), **LOUD)
        scripted.append(1.1, mark(BEGIN, 1))
        scripted.append(31.0)
        scripted.step("AB.")
        scripted.append(31.4, mark(PAUSE, 30.99), mark(ENDED, 30.99), mark(BEGIN, 31.2))
        assert scripted.step(LOOP).step.is_last  # its text is not judged
        assert scripted.text() == "AB"
        scripted.append(32.0)
        assert scripted.step("C.").step.utterance == 2


class TestPrompt:
    def test_the_text_before_is_the_prompt_if_the_options_say_so(self):
        scripted = ScriptedWindows(LiveOptions(trim_ms=2_000), condition_on_previous_text=True)
        scripted.append(2.5, mark(BEGIN, 0))
        scripted.step(0.0, "AB", 1.0, 1.0, "CD.")
        assert scripted.windows.previous == ()  # of the open window nothing is before it
        scripted.append(3.0)
        scripted.step(0.0, "AB", 1.0, 1.0, "CDE.")
        assert letters(scripted.windows.previous) == "AB"
        scripted.append(3.5, mark(ENDED, 3.5), mark(BEGIN, 3.5))
        scripted.step(0.0, "CDEF.")
        assert letters(scripted.windows.previous) == "ABCDEF"
        scripted.append(4.5)
        start = SPOKEN.start_of_transcript
        assert scripted.open().prompt == (SPOKEN.start_of_prev, *token_ids("ABCDEF"), start)

    def test_silence_adds_no_text_to_the_prompt(self):
        scripted = ScriptedWindows(condition_on_previous_text=True, no_speech_threshold=0.5)
        scripted.append(2.0, mark(BEGIN, 0), mark(ENDED, 1), mark(BEGIN, 1))
        scripted.step("AB.", no_speech_prob=0.9)
        assert scripted.open().prompt == (SPOKEN.start_of_transcript,)

    def test_text_of_a_high_temperature_is_no_prompt(self):
        scripted = ScriptedWindows(condition_on_previous_text=True, temperatures=(0.0, 0.9), **LOUD)
        scripted.append(5.0, mark(BEGIN, 0), mark(ENDED, 4), mark(BEGIN, 4))
        scripted.step(LOOP)
        scripted.step(LOOP)
        assert scripted.open().prompt == (SPOKEN.start_of_transcript,)

    def test_the_callers_words_are_the_prompt_of_the_first_utterance(self):
        scripted = ScriptedWindows()
        words = PromptText(initial=token_ids("QR"))
        options = DecodingOptions(live=LiveOptions(), condition_on_previous_text=True)
        scripted.windows = LiveWindows(SPOKEN, options, words)
        scripted.append(1.0, mark(BEGIN, 0))
        assert scripted.open().prompt == (SPOKEN.start_of_prev, *token_ids("QR"), SPOKEN.start_of_transcript)


class TestLanguage:
    def windows(self, **live) -> ScriptedWindows:
        return ScriptedWindows(LiveOptions(**live), SPOKEN_MULTILINGUAL)

    def test_a_step_grows_until_its_language_is_detected(self):
        scripted = self.windows()
        scripted.append(0.7, mark(BEGIN, 0))
        assert extent(scripted) == (0, 0.5)
        scripted.append(3.0)
        assert extent(scripted) == (0, 3.0)
        scripted.windows.language = "de"
        assert SPOKEN_MULTILINGUAL.languages["de"] in scripted.open().prompt
        scripted.close(token_ids("AB."))

    def test_it_is_detected_at_each_step_until_some_text_is_final(self):
        scripted = self.windows()
        scripted.append(0.5, mark(BEGIN, 0))
        scripted.windows.language = "de"
        scripted.step("AB.")
        assert scripted.windows.language is None
        scripted.append(1.0)
        scripted.windows.language = "en"
        scripted.step("ABC.")
        assert (scripted.text(), scripted.windows.language) == ("AB", "en")
        scripted.append(2.0, mark(ENDED, 2.0), mark(BEGIN, 2.0))
        assert scripted.step("ABCD.").step.is_last
        assert scripted.windows.language is None

    def test_it_stays_for_all_of_an_utterance_even_after_cuts(self):
        scripted = self.windows()
        scripted.append(0.1, mark(BEGIN, 0))
        scripted.append(30.0)
        assert scripted.ready
        scripted.windows.language = "de"
        scripted.step("AB.")
        assert scripted.windows.num_final == 0
        assert scripted.windows.language == "de"
        scripted.append(30.5)
        scripted.step("C.")
        assert scripted.windows.language == "de"

    def test_the_callers_language_stays(self):
        scripted = ScriptedWindows(vocabulary=SPOKEN_MULTILINGUAL, language="de")
        scripted.append(0.5, mark(BEGIN, 0), mark(ENDED, 0.5))
        scripted.step("AB.")
        assert scripted.windows.language == "de"

    def test_a_retried_window_keeps_its_language(self):
        scripted = ScriptedWindows(vocabulary=SPOKEN_MULTILINGUAL, temperatures=(0.0, 0.5), **LOUD)
        scripted.append(5.0, mark(BEGIN, 0), mark(ENDED, 5.0))
        assert scripted.ready
        scripted.windows.language = "de"
        scripted.step(LOOP)
        assert scripted.windows.language == "de"
        assert SPOKEN_MULTILINGUAL.languages["de"] in scripted.open().prompt


class TestContinuing:
    def test_a_session_continues_from_a_position_and_repeats_no_final_word(self):
        live = LiveOptions(position=LivePosition(10 * SAMPLE_RATE, 4, token_ids("AB")))
        scripted = ScriptedWindows(live)
        scripted.append(10.2)
        scripted.append(11.0, mark(BEGIN, 10.4))  # it is marked later than it began
        assert extent(scripted) == (10.0, 10.9)
        assert scripted.windows.num_final == 2
        scripted.step("ABC.")
        scripted.append(11.5, is_last=True)
        step = scripted.step("ABCD.").step
        assert (step.utterance, step.is_last, scripted.text(5)) == (5, True, "CD")

    def test_final_text_of_a_position_is_dropped_in_silence(self):
        scripted = ScriptedWindows(LiveOptions(position=LivePosition(0, 4, token_ids("AB"))))
        scripted.append(4.9)
        assert (scripted.windows.num_final, scripted.windows.next_frame) == (2, 0)
        scripted.append(5.1)
        assert (scripted.windows.num_final, scripted.windows.next_frame) == (0, 10)
        scripted.append(6.0, mark(BEGIN, 5.5), is_last=True)
        scripted.step("ABC.")
        assert scripted.text(6) == "ABC"  # the one that had ended was the fifth

    def test_final_tokens_that_are_no_text_are_refused(self):
        with pytest.raises(InvalidRequest, match="final tokens of a position are text"):
            ScriptedWindows(LiveOptions(position=LivePosition(final_tokens=(1, END))))

    @pytest.mark.parametrize("start_sample", [0, 160_000])
    def test_without_further_audio_no_window_opens(self, start_sample):
        scripted = ScriptedWindows(LiveOptions(position=LivePosition(start_sample, 2)))
        scripted.append(0, mark(BEGIN, start_sample / SAMPLE_RATE), is_last=True)
        assert scripted.ready == 0


noises = st.none() | st.tuples(st.sampled_from(["insert", "leave out", "replace"]), st.integers(0, 80))


@settings(max_examples=200)
@given(
    start_frame=st.integers(0, 40).map(lambda i: 2 * i),
    num_words=st.integers(1, 40),
    step_ms=st.sampled_from([400, 500, 1_000, 3_000]),
    trim_ms=st.sampled_from([2_000, 6_000, 15_000]),
    late=st.lists(st.integers(1, 4), min_size=1, max_size=10),
    noise=st.lists(noises, min_size=1, max_size=7),
    piece_ms=st.sampled_from([100, 230, 1_000]),
)
def test_every_word_becomes_final_once_whatever_words_are_written_wrongly(
    start_frame, num_words, step_ms, trim_ms, late, noise, piece_ms
):
    speaker = Speaker(start_frame, num_words)
    end_s = (start_frame + num_words * Speaker.WORD_FRAMES) / 100
    scripted = ScriptedWindows(LiveOptions(step_ms=step_ms, trim_ms=trim_ms))
    at_s, number, final_text = 0.0, 0, ""
    while at_s < end_s:
        at_s = min(end_s, at_s + piece_ms / 1000 * late[number % len(late)])
        marks = [mark(BEGIN, start_frame / 100)] if at_s >= start_frame / 100 else []
        scripted.append(at_s, *marks, is_last=at_s == end_s)
        while scripted.ready:
            window = scripted.open()
            # Never two in a row, which might agree, nor the last one, which no step corrects.
            wrong = noise[number % len(noise)] if number % 2 and at_s < end_s else None
            scripted.close(speaker.write(window.start_frame, window.num_frames, number, wrong))
            assert scripted.text().startswith(final_text)
            final_text, number = scripted.text(), number + 1
    assert scripted.final[1] == speaker.right_words()
    if trim_ms == 2_000 and num_words > 30 and step_ms < 1_000 and not any(noise):
        assert window.start_frame > start_frame, "it was cut"


hypotheses = st.lists(
    st.one_of(
        st.integers(0, NUM_TEXT - 1),
        st.integers(0, 5),
        st.integers(TIME, TIME + 1_500),
        st.integers(TIME, TIME + 100),
    ),
    max_size=12,
)


@st.composite
def rewordings(draw, before: list[int]):
    """A text that may begin as the last one did, or not."""
    before = [token for token in before if token != END]
    kept = before[: draw(st.integers(0, len(before)))] if draw(st.booleans()) else before
    return [*kept, *draw(hypotheses), *([END] if draw(st.booleans()) else [])]


@settings(max_examples=150)
@given(
    data=st.data(),
    policy=st.sampled_from(StabilityPolicy),
    step_ms=st.sampled_from([100, 500, 3_333]),
    trim_ms=st.sampled_from([1_000, 15_000, 28_000]),
    reuses_candidates=st.booleans(),
    temperatures=st.sampled_from([(0.0,), (0.0, 0.3, 0.4)]),
    position=st.tuples(st.integers(0, 400), st.lists(st.integers(0, NUM_TEXT - 1), max_size=5)),
)
def test_final_text_only_grows_whatever_is_marked_and_written(
    data, policy, step_ms, trim_ms, reuses_candidates, temperatures, position
):
    """Returned final text equals what the windows keep; windows lie in the audio."""
    live = LiveOptions(
        policy=policy,
        step_ms=step_ms,
        trim_ms=trim_ms,
        reuses_candidates=reuses_candidates,
        position=LivePosition(position[0] * HOP_SAMPLES, final_tokens=tuple(position[1])),
    )
    scripted = ScriptedWindows(
        live,
        temperatures=temperatures,
        condition_on_previous_text=True,
        compression_ratio_threshold=1.5,
        no_speech_threshold=0.8,
        logprob_threshold=-1.0,
    )
    final_text: list[int] = list(position[1])  # all final text
    at, last_frame, tokens, window_ids = live.position.start_sample, 0, [], []
    attempt, num_done = 0, 0
    for _ in range(data.draw(st.integers(1, 12))):
        at += data.draw(st.sampled_from([0, 1, 159, 160, 4_000, 8_000, 40_000, 480_000, 480_160]))
        places = st.sampled_from([at, at - 1_000, at - 4_000, 0, at + 1_000, at // HOP_SAMPLES * HOP_SAMPLES])
        events = st.builds(
            lambda event, sample: mark(event, sample / SAMPLE_RATE),
            st.sampled_from([BEGIN, BEGIN, PAUSE, ENDED]),
            places,
        )
        scripted.append(at / SAMPLE_RATE, *data.draw(st.lists(events, max_size=3)), is_last=False)
        for _ in range(data.draw(st.integers(0, 3))):
            if not scripted.ready:
                break
            num_done += _check_step(scripted, data, final_text, tokens, attempt)
            attempt = scripted.opened.attempt + 1 if scripted.windows._retry else 0
            assert scripted.opened.start_frame >= last_frame - 1
            last_frame = scripted.opened.start_frame
            window_ids.append(scripted.opened.id)
    scripted.append(at / SAMPLE_RATE, is_last=True)
    while scripted.ready:
        num_done += _check_step(scripted, data, final_text, tokens, attempt)
        attempt = scripted.opened.attempt + 1 if scripted.windows._retry else 0
        window_ids.append(scripted.opened.id)
    assert scripted.ready == 0
    assert window_ids == list(range(len(window_ids)))
    if num_done:
        assert scripted.windows.num_final == 0


def _check_step(
    scripted: ScriptedWindows, data, final_text: list[int], tokens: list[int], attempt: int
) -> bool:
    start, num_frames = scripted.windows.next_frame, scripted.ready
    assert num_frames == scripted.ready, "asking changes nothing"
    assert 1 <= num_frames <= WINDOW_FRAMES
    assert (start + num_frames - 1) * HOP_SAMPLES < scripted.received_samples
    assert num_frames == 1 or (start + num_frames) * HOP_SAMPLES <= scripted.received_samples
    num_final, before = scripted.windows.num_final, scripted.windows.previous
    window = scripted.open()
    assert (window.start_frame, window.num_frames, window.attempt) == (start, num_frames, attempt)
    assert 1 <= window.max_new_tokens <= MAX_TOKENS + num_frames // 4
    tokens[:] = data.draw(rewordings(tokens))[: window.max_new_tokens] or [END]
    text = [token for token in tokens if token < END]
    closed = scripted.close(
        list(tokens),
        log_probs=data.draw(st.sampled_from([[-0.1], [-2.0]])),
        no_speech_prob=data.draw(st.sampled_from([0.1, 0.9])),
        attended_ms=data.draw(st.lists(st.integers(0, 30_000), min_size=len(text), max_size=len(text)))
        if scripted.windows.attends
        else (),
    )
    step = closed.step
    if step is None:
        assert closed.outcome is Outcome.RETRIED
        return False
    final = [i for i in tokens[step.final_start : step.final_end] if i < END]
    if step.final_end:
        assert tokens[step.final_start] < END and tokens[step.final_end - 1] < END
    final_text += final
    windows = scripted.windows
    # The text before the next window and the final text in it are the end of all final text.
    remembered = [*windows.previous, *windows._progress.final]
    known = SPOKEN.max_length // 2 - 1
    assert final_text[-len(remembered) :] == remembered or not remembered
    assert len(remembered) >= min(known, len(before) + num_final + len(final))
    for token in closed.reused:
        assert token < END or token >= TIME
    assert not closed.reused or closed.reused[-1] < END
    assert not step.is_last or windows.num_final == 0
    return step.is_last


def test_the_vocabulary_has_words_and_parts_of_words():
    assert SPOKEN.decode(token_ids("ABsC")) == " a bs c"
    assert letters(token_ids("ABsC")) == "ABsC"
    assert [SPOKEN.may_begin_word(token) for token in (0, NUM_WORDS - 1, NUM_WORDS, NUM_TEXT - 1)] == [
        True,
        True,
        False,
        False,
    ]

"""What is decoded while somebody speaks, and what of it is settled."""

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
from tests.live import BEGIN, ENDED, PAUSE, Heard, Speaker, letters, mark, said

LOUD = {"compression_ratio_threshold": 2.0, "compression_ratio_of": "text"}
LOOP = "AB" * 40
ALIGN_ATT = LiveOptions(policy=StabilityPolicy.ALIGN_ATT, margin_ms=400)


def extent(heard: Heard) -> tuple[float, float]:
    """Where the window that is ready begins and ends, in seconds."""
    num_frames = heard.ready
    assert num_frames
    return heard.windows.next_frame / 100, (heard.windows.next_frame + num_frames) / 100


class TestWhen:
    def test_a_step_is_decoded_when_all_of_it_has_come(self):
        heard = Heard()
        heard.hear(0.49, mark(BEGIN, 0))
        assert heard.ready is None
        heard.hear(0.5)
        assert extent(heard) == (0, 0.5)
        heard.step("A.")
        assert heard.ready is None
        heard.hear(0.99)
        assert heard.ready is None

    def test_steps_that_a_late_target_has_missed_are_left_out(self):
        heard = Heard()
        heard.hear(0.5, mark(BEGIN, 0))
        heard.open()
        heard.hear(3.3)
        heard.close(said("A."))
        assert extent(heard) == (0, 3.0)

    def test_steps_are_counted_from_the_begin_of_the_utterance(self):
        heard = Heard(LiveOptions(step_ms=1_000))
        heard.hear(2.0, mark(BEGIN, 0.705))
        assert extent(heard) == (0.7, 1.7)

    def test_a_pause_is_decoded_at_once_and_only_once(self):
        heard = Heard()
        heard.hear(1.4, mark(BEGIN, 0), mark(PAUSE, 1.23))
        assert extent(heard) == (0, 1.23)
        heard.step("A.")
        heard.hear(3.0)
        assert heard.ready is None
        heard.hear(3.0, mark(BEGIN, 3.0))
        assert extent(heard) == (0, 3.0)

    def test_the_end_is_decoded_although_the_pause_was(self):
        heard = Heard()
        heard.hear(1.4, mark(BEGIN, 0), mark(PAUSE, 1.23))
        heard.step("AB.")
        heard.hear(1.8, mark(ENDED, 1.23))
        assert extent(heard) == (0, 1.23)
        assert heard.open().num_frames == 123
        closed = heard.close(said("AB."))
        assert closed.step.is_last
        assert heard.text() == "AB"

    def test_silence_is_never_decoded(self):
        heard = Heard()
        for second in range(1, 7_200):
            heard.hear(second)
            assert heard.ready is None
            assert second - heard.windows.next_frame / 100 <= 5
        heard.hear(7_200, is_last=True)
        assert heard.ready == 0

    def test_the_end_of_the_audio_ends_the_utterance(self):
        heard = Heard()
        heard.hear(0.2, mark(BEGIN, 0), is_last=True)
        assert extent(heard) == (0, 0.2)
        assert heard.step("A.").step.is_last
        assert heard.ready == 0

    def test_utterances_wait_for_a_late_target(self):
        heard = Heard()
        heard.hear(1.0, mark(BEGIN, 0))
        heard.open()
        heard.hear(9.0, mark(ENDED, 1.5), mark(BEGIN, 2), mark(PAUSE, 3), mark(ENDED, 3), mark(BEGIN, 8))
        assert not heard.close(said("A.")).step.is_last
        spans = []
        for word in "ABC":
            spans.append(extent(heard))
            step = heard.step(word + ".").step
        assert spans == [(0, 1.5), (2, 3), (8, 9)]
        assert (step.utterance, step.is_last) == (3, False)
        assert (heard.text(1), heard.text(2), heard.text(3)) == ("A", "B", "")

    def test_a_window_that_was_opened_stays_as_it_is_whatever_comes(self):
        heard = Heard()
        heard.hear(1.0, mark(BEGIN, 0))
        window = heard.open()
        heard.hear(5.0, mark(PAUSE, 0.3), mark(ENDED, 0.3), mark(BEGIN, 3))
        assert heard.close(said("A.")).step.is_last  # it reached beyond the end
        assert (window.start_frame, window.num_frames) == (0, 100)
        assert extent(heard) == (3, 5)

    def test_an_utterance_shorter_than_a_frame_is_none(self):
        heard = Heard()
        heard.hear(0.005, mark(BEGIN, 0), is_last=True)
        assert heard.ready == 0

    def test_closing_without_an_utterance_is_an_error(self):
        heard = Heard()
        heard.hear(1.0, mark(BEGIN, 0))
        window = heard.open()
        heard.hear(1.0, is_last=True)
        heard.close(said("A."))
        with pytest.raises(RuntimeError, match="Window 0 was closed without an utterance"):
            heard.windows.close(window, said("A."))


class TestAgreement:
    def test_what_two_steps_agree_on_is_final(self):
        heard = Heard()
        heard.hear(0.5, mark(BEGIN, 0))
        heard.step(0.0, "AB", 0.4, ".")
        assert heard.text() == ""
        heard.hear(1.0)
        closed = heard.step(0.0, "ABC", 0.8, ".")
        assert heard.text() == "AB"
        assert closed.reused == said(0.0, "ABC")
        assert (closed.step.final_start, closed.step.final_end) == (1, 3)
        heard.hear(1.5)
        heard.step(0.0, "ABCD.")
        assert heard.text() == "ABC"
        assert heard.windows.num_final == 3

    def test_final_text_is_never_taken_back(self):
        heard = Heard()
        for number, text in enumerate(["AB.", "ABC.", "XBCD.", "BCD.", "AXBCDE."], start=1):
            heard.hear(number * 0.5, mark(BEGIN, 0))
            before = heard.text()
            heard.step(text.replace("X", "M"))
            assert heard.text().startswith(before)
        heard.hear(2.5, is_last=True)
        heard.step("MBCDEF.")
        assert heard.text() == "ABCDEF"

    def test_half_a_word_is_not_final(self):
        heard = Heard()
        heard.hear(0.5, mark(BEGIN, 0))
        heard.step("AsBt.")
        heard.hear(1.0)
        heard.step("AsBu.")
        assert letters(heard.told[1]) == "As"

    def test_at_the_end_everything_is_final_and_forgotten(self):
        heard = Heard()
        heard.hear(0.5, mark(BEGIN, 0), mark(ENDED, 0.5))
        closed = heard.step(0.0, "ABC", 0.4, ".")
        assert (heard.text(), heard.windows.num_final, closed.reused) == ("ABC", 0, ())
        assert (closed.step.utterance, closed.step.is_last) == (1, True)

    def test_without_recalls_nothing_is_expected_and_the_text_is_the_same(self):
        heard = Heard(LiveOptions(reuses_candidates=False), temperatures=(0.0, 0.5), **LOUD)
        heard.hear(0.5, mark(BEGIN, 0))
        assert heard.step("AB.").reused == ()
        heard.hear(1.0)
        heard.step("ABC.")
        assert heard.text() == "AB"
        heard.hear(5.0, is_last=True)
        closed = heard.step(LOOP)
        assert (closed.outcome, closed.reused) == (Outcome.RETRIED, ())


class TestAttention:
    def test_what_is_not_looked_at_in_the_last_moments_is_final_at_once(self):
        heard = Heard(ALIGN_ATT)
        assert heard.windows.attends
        heard.hear(1.0, mark(BEGIN, 0))
        heard.step(0.0, "ABC", 0.9, ".", attended_ms=[100, 600, 601])
        assert heard.text() == "AB"

    def test_of_final_text_it_does_not_matter_where_the_decoder_looks(self):
        heard = Heard(ALIGN_ATT)
        heard.hear(1.0, mark(BEGIN, 0))
        heard.step("AB.", attended_ms=[100, 200])
        heard.hear(2.0)
        heard.step("ABCD.", attended_ms=[1_900, 1_900, 1_500, 1_900])
        assert heard.text() == "ABC"

    @pytest.mark.parametrize("judged", [{"no_speech_prob": 0.9}, {"log_probs": [-5.0]}])
    def test_a_window_that_failed_settles_nothing_wherever_the_decoder_looked(self, judged):
        heard = Heard(ALIGN_ATT, no_speech_threshold=0.5, logprob_threshold=-1.0)
        heard.hear(1.0, mark(BEGIN, 0))
        step = heard.step("ABC.", attended_ms=[100, 200, 900], **{"log_probs": [-5.0]} | judged).step
        assert (step.final_start, step.final_end, heard.text()) == (0, 0, "")


class TestFailures:
    def test_what_failed_while_somebody_speaks_settles_nothing_and_is_not_tried_again(self):
        heard = Heard(temperatures=(0.0, 0.5), **LOUD)
        heard.hear(5.0, mark(BEGIN, 0))
        heard.step("A B C.")
        heard.hear(5.5)
        closed = heard.step(LOOP)
        assert (closed.outcome, closed.reused, heard.text()) == (Outcome.SKIPPED, (), "")
        assert heard.ready is None
        heard.hear(6.0)
        assert heard.open().attempt == 0
        heard.close(said("ABC."))
        assert heard.text() == ""  # two in a row must agree
        heard.hear(6.5)
        heard.step("ABC.")
        assert heard.text() == "ABC"

    def test_silence_settles_nothing(self):
        heard = Heard(no_speech_threshold=0.5)
        heard.hear(1.0, mark(BEGIN, 0), mark(ENDED, 1.0))
        closed = heard.step("ABC.", no_speech_prob=0.9)
        assert (closed.outcome, closed.step.is_last, heard.text()) == (Outcome.SKIPPED, True, "")

    def test_at_the_end_it_is_tried_at_every_temperature_and_the_last_one_has_the_last_word(self):
        heard = Heard(temperatures=(0.0, 0.4, 0.8), **LOUD)
        heard.hear(5.0, mark(BEGIN, 0), mark(ENDED, 5.0))
        windows = []
        for _ in range(2):
            windows.append(heard.open())
            closed = heard.close(said(LOOP))
            assert (closed.outcome, closed.step, closed.reused) == (Outcome.RETRIED, None, said(LOOP))
        windows.append(heard.open())
        closed = heard.close(said(LOOP))
        assert (closed.outcome, closed.step.is_last, heard.text()) == (Outcome.KEPT, True, LOOP)
        assert [(w.id, w.attempt, w.temperature) for w in windows] == [(0, 0, 0), (1, 1, 0.4), (2, 2, 0.8)]
        assert len({(w.start_frame, w.num_frames, w.prompt, w.max_new_tokens) for w in windows}) == 1

    def test_a_full_window_is_tried_at_every_temperature_for_nobody_will_hear_it_again(self):
        heard = Heard(temperatures=(0.0, 0.4), **LOUD)
        heard.hear(0.1, mark(BEGIN, 0))
        heard.hear(40.0)
        assert heard.step(LOOP).outcome is Outcome.RETRIED
        assert heard.open().attempt == 1
        heard.close(said("ABC."))
        assert heard.text() == "ABC"
        assert extent(heard) == (30, 40)

    @given(num_frames=st.integers(1, 3_000))
    def test_a_window_writes_no_more_than_anybody_says_in_it(self, num_frames):
        heard = Heard()
        heard.hear(0.001, mark(BEGIN, 0))
        heard.hear(num_frames / 100, is_last=True)
        window = heard.open()
        assert window.num_frames == num_frames
        assert window.max_new_tokens == min(447, MAX_TOKENS + num_frames // 4)

    def test_the_callers_own_limit_goes_first(self):
        heard = Heard(max_new_tokens=20)
        heard.hear(10.0, mark(BEGIN, 0))
        assert heard.open().max_new_tokens == 20


class TestLongUtterances:
    def test_a_long_window_is_cut_behind_the_last_sentence_that_is_final(self):
        heard = Heard(LiveOptions(trim_ms=2_000))
        heard.hear(2.5, mark(BEGIN, 0))
        heard.step(0.0, "AB", 1.0, 1.0, "CD.")
        heard.hear(3.0)
        closed = heard.step(0.0, "AB", 1.0, 1.0, "CDE", 2.9, ".")
        assert heard.text() == "ABCD"
        assert closed.reused == said(0.0, "CDE")
        assert heard.windows.num_final == 2
        heard.hear(3.5)
        assert extent(heard) == (1.0, 3.5)
        heard.step(0.0, "CDEF.")
        heard.hear(4.0, is_last=True)
        heard.step(0.0, "CDEFG.")
        assert heard.text() == "ABCDEFG"

    def test_a_short_one_is_not_cut(self):
        heard = Heard(LiveOptions(trim_ms=3_000))
        heard.hear(2.5, mark(BEGIN, 0))
        heard.step(0.0, "AB", 1.0, 1.0, "CD.")
        heard.hear(3.0)
        heard.step(0.0, "AB", 1.0, 1.0, "CDE.")
        assert heard.windows.next_frame == 0

    def test_times_that_lie_beyond_the_window_cut_nothing(self):
        heard = Heard(LiveOptions(trim_ms=1_000))
        heard.hear(2.5, mark(BEGIN, 0))
        heard.step(0.0, "AB", 9.0, 9.0, "CD.")
        heard.hear(3.0)
        heard.step(0.0, "AB", 9.0, 9.0, "CDE.")
        assert (heard.windows.next_frame, heard.text()) == (0, "ABCD")

    def test_a_cut_in_text_that_is_worded_differently_loses_and_repeats_nothing(self):
        """What is left of the final text is what lies behind the cut, not as many tokens as are there now."""
        heard = Heard(LiveOptions(trim_ms=2_000))
        heard.hear(1.5, mark(BEGIN, 0))
        heard.step(0.0, "BCDEFG.")
        heard.hear(2.0)
        heard.step(0.0, "BCDEFG.")
        heard.hear(2.5)
        heard.step(0.0, "A", 0.5, 0.5, "MNBCDEFGH.")
        assert heard.text() == "BCDEFG"
        heard.hear(3.0)
        heard.step(0.0, "A", 0.5, 0.5, "MNBCDEFGH.")  # more words behind the cut than are final in all
        assert (heard.text(), heard.windows.next_frame) == ("BCDEFGH", 50)
        heard.hear(3.5, is_last=True)
        heard.step(0.0, "BCDEFGHI.")
        assert heard.text() == "BCDEFGHI"

    def test_a_full_window_is_final_and_the_next_begins_behind_it(self):
        heard = Heard(LiveOptions(trim_ms=28_000))
        heard.hear(1.0, mark(BEGIN, 1))
        heard.hear(100)
        assert extent(heard) == (1, 31)
        closed = heard.step(0.0, "ABC", 10.0, 10.0, "DEs.")
        assert (heard.text(), heard.windows.num_final, closed.reused) == ("ABCDEs", 0, ())
        assert not closed.step.is_last
        assert extent(heard) == (31, 61)

    @pytest.mark.parametrize("trim_ms", [2_000, 28_000])
    def test_where_the_utterance_ends_with_a_cut_nothing_more_is_said(self, trim_ms):
        """A window there must be, to tell the end; it hears what was heard already, and settles nothing."""
        heard = Heard(LiveOptions(trim_ms=trim_ms))
        end_s = 30 if trim_ms == 28_000 else 3
        heard.hear(0.1, mark(BEGIN, 0))
        heard.hear(end_s - 0.5)
        heard.step(0.0, "AB", end_s, end_s, "C.")
        heard.hear(end_s)
        heard.step(0.0, "AB", end_s, end_s, "C.")
        heard.hear(end_s, is_last=True)
        begin_s, reached_s = extent(heard)
        assert 0 <= begin_s < reached_s <= end_s
        closed = heard.step("D")
        assert heard.opened.max_new_tokens == 1
        assert closed.step.is_last
        assert heard.text() == "ABC"
        assert heard.ready == 0

    def test_an_utterance_that_has_ended_behind_its_last_cut_is_told_without_more_text(self):
        heard = Heard(LiveOptions(trim_ms=28_000), temperatures=(0.0, 0.5), **LOUD)
        heard.hear(1.1, mark(BEGIN, 1))
        heard.hear(31.0)
        heard.step("AB.")
        heard.hear(31.4, mark(PAUSE, 30.99), mark(ENDED, 30.99), mark(BEGIN, 31.2))
        assert heard.step(LOOP).step.is_last  # what it hears is not judged
        assert heard.text() == "AB"
        heard.hear(32.0)
        assert heard.step("C.").step.utterance == 2


class TestPrompt:
    def test_the_text_before_is_the_prompt_where_it_is_asked_for(self):
        heard = Heard(LiveOptions(trim_ms=2_000), condition_on_previous_text=True)
        heard.hear(2.5, mark(BEGIN, 0))
        heard.step(0.0, "AB", 1.0, 1.0, "CD.")
        assert heard.windows.previous == ()  # of the open window nothing is before it
        heard.hear(3.0)
        heard.step(0.0, "AB", 1.0, 1.0, "CDE.")
        assert letters(heard.windows.previous) == "AB"
        heard.hear(3.5, mark(ENDED, 3.5), mark(BEGIN, 3.5))
        heard.step(0.0, "CDEF.")
        assert letters(heard.windows.previous) == "ABCDEF"
        heard.hear(4.5)
        start = SPOKEN.start_of_transcript
        assert heard.open().prompt == (SPOKEN.start_of_prev, *said("ABCDEF"), start)

    def test_where_nothing_was_said_there_is_no_text_before(self):
        heard = Heard(condition_on_previous_text=True, no_speech_threshold=0.5)
        heard.hear(2.0, mark(BEGIN, 0), mark(ENDED, 1), mark(BEGIN, 1))
        heard.step("AB.", no_speech_prob=0.9)
        assert heard.open().prompt == (SPOKEN.start_of_transcript,)

    def test_what_was_sampled_hot_is_no_prompt(self):
        heard = Heard(condition_on_previous_text=True, temperatures=(0.0, 0.9), **LOUD)
        heard.hear(5.0, mark(BEGIN, 0), mark(ENDED, 4), mark(BEGIN, 4))
        heard.step(LOOP)
        heard.step(LOOP)
        assert heard.open().prompt == (SPOKEN.start_of_transcript,)

    def test_the_callers_words_are_the_prompt_of_the_first_utterance(self):
        heard = Heard()
        words = PromptText(initial=said("QR"))
        options = DecodingOptions(live=LiveOptions(), condition_on_previous_text=True)
        heard.windows = LiveWindows(SPOKEN, options, words)
        heard.hear(1.0, mark(BEGIN, 0))
        assert heard.open().prompt == (SPOKEN.start_of_prev, *said("QR"), SPOKEN.start_of_transcript)


class TestLanguage:
    def heard(self, **live) -> Heard:
        return Heard(LiveOptions(**live), SPOKEN_MULTILINGUAL)

    def test_the_next_step_grows_until_somebody_listens_for_its_language(self):
        heard = self.heard()
        heard.hear(0.7, mark(BEGIN, 0))
        assert extent(heard) == (0, 0.5)
        heard.hear(3.0)
        assert extent(heard) == (0, 3.0)
        heard.windows.language = "de"
        assert SPOKEN_MULTILINGUAL.languages["de"] in heard.open().prompt
        heard.close(said("AB."))

    def test_it_is_told_anew_until_some_text_is_final_and_for_each_utterance(self):
        heard = self.heard()
        heard.hear(0.5, mark(BEGIN, 0))
        heard.windows.language = "de"
        heard.step("AB.")
        assert heard.windows.language is None
        heard.hear(1.0)
        heard.windows.language = "en"
        heard.step("ABC.")
        assert (heard.text(), heard.windows.language) == ("AB", "en")
        heard.hear(2.0, mark(ENDED, 2.0), mark(BEGIN, 2.0))
        assert heard.step("ABCD.").step.is_last
        assert heard.windows.language is None

    def test_it_stays_for_all_of_an_utterance_however_often_that_is_cut(self):
        heard = self.heard()
        heard.hear(0.1, mark(BEGIN, 0))
        heard.hear(30.0)
        assert heard.ready
        heard.windows.language = "de"
        heard.step("AB.")
        assert heard.windows.num_final == 0
        assert heard.windows.language == "de"
        heard.hear(30.5)
        heard.step("C.")
        assert heard.windows.language == "de"

    def test_a_language_that_is_asked_for_stays(self):
        heard = Heard(vocabulary=SPOKEN_MULTILINGUAL, language="de")
        heard.hear(0.5, mark(BEGIN, 0), mark(ENDED, 0.5))
        heard.step("AB.")
        assert heard.windows.language == "de"

    def test_another_try_is_in_the_same_language(self):
        heard = Heard(vocabulary=SPOKEN_MULTILINGUAL, temperatures=(0.0, 0.5), **LOUD)
        heard.hear(5.0, mark(BEGIN, 0), mark(ENDED, 5.0))
        assert heard.ready
        heard.windows.language = "de"
        heard.step(LOOP)
        assert heard.windows.language == "de"
        assert SPOKEN_MULTILINGUAL.languages["de"] in heard.open().prompt


class TestGoingOn:
    def test_a_session_goes_on_where_another_was_and_repeats_no_final_word(self):
        live = LiveOptions(position=LivePosition(10 * SAMPLE_RATE, 4, said("AB")))
        heard = Heard(live)
        heard.hear(10.2)
        heard.hear(11.0, mark(BEGIN, 10.4))  # it is heard later than it began
        assert extent(heard) == (10.0, 10.9)
        assert heard.windows.num_final == 2
        heard.step("ABC.")
        heard.hear(11.5, is_last=True)
        step = heard.step("ABCD.").step
        assert (step.utterance, step.is_last, heard.text(5)) == (5, True, "CD")

    def test_final_text_of_an_utterance_that_had_ended_is_forgotten_in_silence(self):
        heard = Heard(LiveOptions(position=LivePosition(0, 4, said("AB"))))
        heard.hear(4.9)
        assert (heard.windows.num_final, heard.windows.next_frame) == (2, 0)
        heard.hear(5.1)
        assert (heard.windows.num_final, heard.windows.next_frame) == (0, 10)
        heard.hear(6.0, mark(BEGIN, 5.5), is_last=True)
        heard.step("ABC.")
        assert heard.text(6) == "ABC"  # the one that had ended was the fifth

    def test_final_tokens_that_are_no_text_are_refused(self):
        with pytest.raises(InvalidRequest, match="final tokens of a position are text"):
            Heard(LiveOptions(position=LivePosition(final_tokens=(1, END))))

    @pytest.mark.parametrize("start_sample", [0, 160_000])
    def test_where_no_audio_follows_there_is_nothing_to_decode(self, start_sample):
        heard = Heard(LiveOptions(position=LivePosition(start_sample, 2)))
        heard.hear(0, mark(BEGIN, start_sample / SAMPLE_RATE), is_last=True)
        assert heard.ready == 0


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
def test_every_word_is_told_once_whatever_single_words_are_misheard(
    start_frame, num_words, step_ms, trim_ms, late, noise, piece_ms
):
    speaker = Speaker(start_frame, num_words)
    end_s = (start_frame + num_words * Speaker.WORD_FRAMES) / 100
    heard = Heard(LiveOptions(step_ms=step_ms, trim_ms=trim_ms))
    at_s, number, told = 0.0, 0, ""
    while at_s < end_s:
        at_s = min(end_s, at_s + piece_ms / 1000 * late[number % len(late)])
        marks = [mark(BEGIN, start_frame / 100)] if at_s >= start_frame / 100 else []
        heard.hear(at_s, *marks, is_last=at_s == end_s)
        while heard.ready:
            window = heard.open()
            # Never two in a row, which might agree, nor the last, which nobody corrects.
            wrong = noise[number % len(noise)] if number % 2 and at_s < end_s else None
            heard.close(speaker.write(window.start_frame, window.num_frames, number, wrong))
            assert heard.text().startswith(told)
            told, number = heard.text(), number + 1
    assert heard.told[1] == speaker.true_words()
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
def test_whatever_is_heard_and_written_final_text_only_grows(
    data, policy, step_ms, trim_ms, reuses_candidates, temperatures, position
):
    """What was told piece by piece is what the windows themselves remember; windows lie in the audio."""
    live = LiveOptions(
        policy=policy,
        step_ms=step_ms,
        trim_ms=trim_ms,
        reuses_candidates=reuses_candidates,
        position=LivePosition(position[0] * HOP_SAMPLES, final_tokens=tuple(position[1])),
    )
    heard = Heard(
        live,
        temperatures=temperatures,
        condition_on_previous_text=True,
        compression_ratio_threshold=1.5,
        no_speech_threshold=0.8,
        logprob_threshold=-1.0,
    )
    told: list[int] = list(position[1])  # all that was, or is, final
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
        heard.hear(at / SAMPLE_RATE, *data.draw(st.lists(events, max_size=3)), is_last=False)
        for _ in range(data.draw(st.integers(0, 3))):
            if not heard.ready:
                break
            num_done += _check_step(heard, data, told, tokens, attempt)
            attempt = heard.opened.attempt + 1 if heard.windows._retry else 0
            assert heard.opened.start_frame >= last_frame - 1
            last_frame = heard.opened.start_frame
            window_ids.append(heard.opened.id)
    heard.hear(at / SAMPLE_RATE, is_last=True)
    while heard.ready:
        num_done += _check_step(heard, data, told, tokens, attempt)
        attempt = heard.opened.attempt + 1 if heard.windows._retry else 0
        window_ids.append(heard.opened.id)
    assert heard.ready == 0
    assert window_ids == list(range(len(window_ids)))
    if num_done:
        assert heard.windows.num_final == 0


def _check_step(heard: Heard, data, told: list[int], tokens: list[int], attempt: int) -> bool:
    start, num_frames = heard.windows.next_frame, heard.ready
    assert num_frames == heard.ready, "asking changes nothing"
    assert 1 <= num_frames <= WINDOW_FRAMES
    assert (start + num_frames - 1) * HOP_SAMPLES < heard.received_samples
    assert num_frames == 1 or (start + num_frames) * HOP_SAMPLES <= heard.received_samples
    num_final, before = heard.windows.num_final, heard.windows.previous
    window = heard.open()
    assert (window.start_frame, window.num_frames, window.attempt) == (start, num_frames, attempt)
    assert 1 <= window.max_new_tokens <= MAX_TOKENS + num_frames // 4
    tokens[:] = data.draw(rewordings(tokens))[: window.max_new_tokens] or [END]
    text = [token for token in tokens if token < END]
    closed = heard.close(
        list(tokens),
        log_probs=data.draw(st.sampled_from([[-0.1], [-2.0]])),
        no_speech_prob=data.draw(st.sampled_from([0.1, 0.9])),
        attended_ms=data.draw(st.lists(st.integers(0, 30_000), min_size=len(text), max_size=len(text)))
        if heard.windows.attends
        else (),
    )
    step = closed.step
    if step is None:
        assert closed.outcome is Outcome.RETRIED
        return False
    final = [i for i in tokens[step.final_start : step.final_end] if i < END]
    if step.final_end:
        assert tokens[step.final_start] < END and tokens[step.final_end - 1] < END
    told += final
    windows = heard.windows
    # What is before the next window and what is final in it are all that was told, its end at least.
    remembered = [*windows.previous, *windows._progress.final]
    known = SPOKEN.max_length // 2 - 1
    assert told[-len(remembered) :] == remembered or not remembered
    assert len(remembered) >= min(known, len(before) + num_final + len(final))
    for token in closed.reused:
        assert token < END or token >= TIME
    assert not closed.reused or closed.reused[-1] < END
    assert not step.is_last or windows.num_final == 0
    return step.is_last


def test_the_vocabulary_has_words_and_parts_of_words():
    assert SPOKEN.decode(said("ABsC")) == " a bs c"
    assert letters(said("ABsC")) == "ABsC"
    assert [SPOKEN.may_begin_word(token) for token in (0, NUM_WORDS - 1, NUM_WORDS, NUM_TEXT - 1)] == [
        True,
        True,
        False,
        False,
    ]

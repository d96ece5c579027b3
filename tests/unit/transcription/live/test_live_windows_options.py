"""Live windows: prompt, language, and sessions that continue."""

from __future__ import annotations

import pytest

from experiments.common.models.scripted import END
from experiments.common.models.speech import SPOKEN, SPOKEN_MULTILINGUAL
from specwhisper.errors import InvalidRequest
from specwhisper.live import LiveOptions, LivePosition
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live.windows import LiveWindows
from specwhisper.transcription.prompting import PromptText
from specwhisper.types import SAMPLE_RATE
from tests.live import BEGIN, ENDED, ScriptedWindows, letters, mark, token_ids

REPETITION_FAILS = {"compression_ratio_threshold": 2.0, "compression_ratio_of": "text"}
LOOP = "AB" * 40


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
        scripted = ScriptedWindows(
            condition_on_previous_text=True, temperatures=(0.0, 0.9), **REPETITION_FAILS
        )
        scripted.append(5.0, mark(BEGIN, 0), mark(ENDED, 4), mark(BEGIN, 4))
        scripted.step(LOOP)
        scripted.step(LOOP)
        assert scripted.open().prompt == (SPOKEN.start_of_transcript,)

    def test_the_callers_words_are_the_prompt_of_the_first_utterance(self):
        scripted = ScriptedWindows()
        words = PromptText(initial=token_ids("QR"))
        options = DecodingOptions.greedy(live=LiveOptions(), condition_on_previous_text=True)
        scripted.windows = LiveWindows(SPOKEN, options, words)
        scripted.append(1.0, mark(BEGIN, 0))
        assert scripted.open().prompt == (SPOKEN.start_of_prev, *token_ids("QR"), SPOKEN.start_of_transcript)


class TestLanguage:
    def windows(self, **live) -> ScriptedWindows:
        return ScriptedWindows(LiveOptions(**live), SPOKEN_MULTILINGUAL)

    def test_a_step_grows_until_its_language_is_detected(self):
        scripted = self.windows()
        scripted.append(0.7, mark(BEGIN, 0))
        assert scripted.extent_s == (0, 0.5)
        scripted.append(3.0)
        assert scripted.extent_s == (0, 3.0)
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

    def test_an_utterance_stays_with_the_language_before_unless_another_is_sure(self):
        scripted = ScriptedWindows(vocabulary=SPOKEN_MULTILINGUAL, languages="en,de")
        for begin_s, german, language in ((0, 0.9, "de"), (2, 0.4, "de"), (4, 0.1, "en"), (6, 0.6, "en")):
            scripted.append(begin_s + 1.5, mark(BEGIN, begin_s), mark(ENDED, begin_s + 0.8))
            assert scripted.windows.language is None
            probs = scripted.windows.detected({"en": (1 - german) / 4, "de": german / 4, "fr": 0.75})
            assert probs == pytest.approx({"en": 1 - german, "de": german})
            assert scripted.windows.language == language
            scripted.step("AB.")

    def test_the_callers_language_stays(self):
        scripted = ScriptedWindows(vocabulary=SPOKEN_MULTILINGUAL, language="de")
        scripted.append(0.5, mark(BEGIN, 0), mark(ENDED, 0.5))
        scripted.step("AB.")
        assert scripted.windows.language == "de"

    def test_a_retried_window_keeps_its_language(self):
        scripted = ScriptedWindows(
            vocabulary=SPOKEN_MULTILINGUAL, temperatures=(0.0, 0.5), **REPETITION_FAILS
        )
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
        assert scripted.extent_s == (10.0, 10.9)
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

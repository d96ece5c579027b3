"""Each piece is decoded once, after as much of the final text before it as fits."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.common.models.scripted import END as END_OF_TEXT
from experiments.common.models.scripted import NUM_TEXT, TIME
from experiments.common.models.speech import SPOKEN, SPOKEN_MULTILINGUAL
from specwhisper.errors import InvalidRequest
from specwhisper.live import FinalPiece, LiveOptions, LivePosition
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live_windows import LiveWindows, max_new_tokens
from specwhisper.transcription.prompting import PromptText
from specwhisper.transcription.windows import MaxLength
from specwhisper.types import (
    SAMPLE_RATE,
    CompletePiece,
    Outcome,
    VoiceEvent,
    VoiceMark,
    Window,
)
from tests.live import BEGIN, CUT, END, ScriptedWindows, letters, mark, token_ids
from tests.nightly import examples

ROOM = (448 - 4) // 2  # tokens of a prefix
CONFIRMED = LiveOptions(confirm_every_ms=500)
TEMPERATURES = (0.0, 0.4, 0.8)
FALLBACK = {"temperatures": TEMPERATURES, "logprob_threshold": -1.0, "no_speech_threshold": 0.6}


def span(window) -> tuple[float, float]:
    return window.start_frame / 100, (window.start_frame + window.num_frames) / 100


class TestPieces:
    def test_a_window_is_ready_once_its_piece_is_complete(self):
        scripted = ScriptedWindows()
        scripted.append(3, mark(BEGIN, 1))
        assert scripted.ready is None
        scripted.append(4, mark(END, 3.5))
        assert span(scripted.step(0.0, "AB", 2.0, ".")) == (1, 3.5)
        assert scripted.ready is None
        scripted.append(60, is_last=True)
        assert scripted.ready == 0

    def test_the_audio_before_comes_with_its_text_and_the_piece_with_its_own_time(self):
        scripted = ScriptedWindows()
        scripted.speak(1, 3, 0.0, "AB", 1.5, ".")
        window = scripted.speak(4, 6, "C", 4.4, ".")
        assert span(window) == (1, 6)
        assert window.prefix == token_ids(0.0, "AB", 1.5, 3.0)
        window = scripted.speak(7, 9, ".")
        assert window.prefix == token_ids(0.0, "AB", 1.5, 3.0, "C", 4.4, 6.0)
        assert scripted.speak(10, 12, ".").prefix == (*window.prefix[:-1], *token_ids(9.0))

    @pytest.mark.parametrize(
        ("parts", "held"),
        [
            ((0.0, "A", 1.0, "."), (0.0, "A", 1.0)),
            (("A.",), (0.0, "A", 2.0)),
            ((0.5, "A", 1.0, 1.2, "B."), (0.5, "A", 1.0, 1.2, "B", 2.0)),
            ((0.0, "A", 1.0, 1.0, "."), (0.0, "A", 1.0)),
            ((0.0, "A", 29.0, "."), (0.0, "A", 2.0)),  # a time after the piece would forbid later ones
        ],
    )
    def test_held_text_lies_between_two_times_of_its_piece(self, parts, held):
        scripted = ScriptedWindows()
        scripted.speak(1, 3, *parts)
        assert scripted.speak(4, 5, ".").prefix == (*token_ids(*held), *token_ids(3.0))

    def test_a_piece_without_text_is_not_held_first(self):
        scripted = ScriptedWindows()
        scripted.speak(0, 2, ".")
        scripted.speak(3, 5, "A.")
        assert span(scripted.speak(6, 8, ".")) == (3, 8)
        assert span(scripted.speak(9, 11, ".")) == (3, 11)

    def test_what_does_not_fit_into_29_seconds_is_left_out(self):
        scripted = ScriptedWindows()
        scripted.speak(0, 10, 0.0, "A", 9.0, ".")
        scripted.speak(10, 20, "B", 19.0, ".")
        assert span(scripted.speak(20, 29, ".")) == (0, 29)
        window = scripted.speak(30, 39, ".")
        assert (span(window), window.prefix) == ((10, 39), token_ids(0.0, "B", 9.0, 20.0))
        assert span(scripted.speak(40, 69, ".")) == (40, 69)

    def test_a_piece_that_the_client_ends_in_speech_is_decoded_alone_and_not_continued(self):
        scripted = ScriptedWindows()
        scripted.speak(0, 2, "A.")
        scripted.append(4, mark(BEGIN, 3), VoiceMark(VoiceEvent.BREAK, 4 * SAMPLE_RATE))
        window = scripted.open()
        assert (span(window), window.prefix) == ((3, 4), ())
        assert scripted.close(token_ids("B.")).piece == CompletePiece(2, 3 * SAMPLE_RATE, True)
        window = scripted.speak(4, 6, "C.")
        assert (span(window), window.prefix) == ((4, 6), ())
        assert letters(scripted.speak(7, 8, ".").prefix) == "C"

    @pytest.mark.parametrize(("end_s", "text"), [(3.1, ""), (3.12, "B")])
    def test_a_tenth_of_a_second_holds_no_word(self, end_s, text):
        scripted = ScriptedWindows()
        scripted.append(4, mark(BEGIN, 3), mark(END, end_s))
        scripted.open()
        closed = scripted.close(token_ids("B."))
        assert (closed.outcome is Outcome.KEPT, closed.num_kept > 0) == (bool(text), bool(text))


class TestOutcomes:
    @pytest.mark.parametrize(("num_failed", "held"), [(0, "AC"), (1, ""), (2, "")])
    def test_a_piece_that_fails_is_decoded_alone_and_not_continued(self, num_failed, held):
        scripted = ScriptedWindows(**FALLBACK)
        scripted.speak(0, 2, "A.")
        scripted.append(5, mark(BEGIN, 3), mark(END, 5))
        first = scripted.open()
        assert span(first) == (0, 5)
        for attempt in range(1, num_failed + 1):
            assert scripted.close(token_ids("B."), log_prob=-2.0).outcome is Outcome.RETRIED
            window = scripted.open()
            assert (span(window), window.prefix, window.prompt) == ((3, 5), (), first.prompt)
            assert (window.attempt, window.temperature) == (attempt, TEMPERATURES[attempt])
        scripted.close(token_ids("C."))
        window = scripted.speak(6, 8, ".")
        assert (letters(window.prefix), window.attempt) == (held, 0)

    @pytest.mark.parametrize(
        ("log_probs", "surest"),
        [((-2.0, -3.0, -4.0), 0), ((-4.0, -2.0, -3.0), 1), ((-4.0, -3.0, -2.0), None)],
    )
    def test_where_all_attempts_fail_the_surest_is_taken(self, log_probs, surest):
        scripted = ScriptedWindows(**FALLBACK)
        scripted.speak(0, 2, "A.")
        scripted.append(5, mark(BEGIN, 3), mark(END, 5))
        for log_prob in log_probs:
            scripted.open()
            closed = scripted.close(token_ids("B."), log_prob=log_prob)
        if surest is not None:
            assert closed.outcome is Outcome.RETRIED
            window = scripted.open()
            assert (window.attempt, window.temperature) == (surest, TEMPERATURES[surest])
            assert span(window) == ((3, 5) if surest else (0, 5)), "the first attempt was not alone"
            closed = scripted.close(token_ids("C."), log_prob=-2.0)
        assert closed.outcome is Outcome.KEPT
        window = scripted.speak(6, 8, ".")
        assert (letters(window.prefix), window.attempt) == ("", 0)

    def test_a_text_that_repeats_itself_is_not_the_surest(self):
        scripted = ScriptedWindows(**FALLBACK, compression_ratio_threshold=2.4)
        scripted.append(5, mark(BEGIN, 0), mark(END, 5))
        for text, log_prob in (("A" * 60 + ".", -0.1), ("B.", -2.0), ("C" * 60 + ".", -0.1)):
            scripted.open()
            scripted.close(token_ids(text), log_prob=log_prob)
        assert scripted.open().attempt == 1

    def test_the_audio_before_decides_nothing_about_silence(self):
        scripted = ScriptedWindows(**FALLBACK)
        scripted.speak(0, 2, "A.")
        scripted.speak(3, 5, "B.", log_prob=-2.0, no_speech_prob=0.9)
        assert span(scripted.open()) == (3, 5)  # it has failed, as speech
        assert scripted.close(token_ids("B."), log_prob=-2.0, no_speech_prob=0.9).outcome is Outcome.SKIPPED


class TestRoom:
    def test_as_many_final_tokens_as_half_of_the_room_are_held(self):
        scripted = ScriptedWindows(timestamps=False)
        scripted.speak(0, 8, "A" * (ROOM - 100) + ".")
        scripted.speak(9, 12, "B" * 100 + ".")
        assert len(scripted.speak(13, 14, "C.").prefix) == ROOM
        window = scripted.speak(15, 16, "D.")
        assert letters(window.prefix) == "B" * 100 + "C"
        assert span(window) == (9, 16)
        assert window.max_new_tokens == 101 + max_new_tokens(SAMPLE_RATE)

    @pytest.mark.parametrize("limit", [1, 20, 60])
    def test_a_limit_counts_new_tokens(self, limit):
        scripted = ScriptedWindows(max_new_tokens=limit, **FALLBACK)
        scripted.speak(0, 2, "A" * 60 + ".")
        window = scripted.speak(3, 5, "B.", log_prob=-2.0)
        assert window.max_new_tokens - len(window.prefix) == limit
        assert scripted.open().max_new_tokens == limit, "it is decoded again, alone"

    def test_long_prompts_shorten_the_prefix(self):
        options = DecodingOptions.greedy(live=LiveOptions(), initial_prompt="a", timestamps=False)
        scripted = ScriptedWindows(timestamps=False)
        scripted.windows = LiveWindows(SPOKEN, options, PromptText(initial=(1,) * 200))
        scripted.speak(0, 2, "A" * 60 + ".")
        scripted.speak(3, 5, "B" * 60 + ".")
        window = scripted.speak(6, 8, "C" * 62 + ".")
        assert letters(window.prefix) == "A" * 60 + "B" * 60
        assert letters(scripted.speak(9, 11, ".").prefix) == "C" * 62

    def test_a_limit_that_grows_in_recordings_does_not_in_live_audio(self):
        scripted, limits = ScriptedWindows(), set()
        options = DecodingOptions.greedy(live=LiveOptions())
        scripted.windows = LiveWindows(SPOKEN, options, max_new_tokens=MaxLength(100))
        for second in range(0, 20, 4):
            window = scripted.speak(second, second + 3, "A.")
            limits.add(window.max_new_tokens - len(window.prefix))
        assert limits == {100}


class TestLanguages:
    def scripted(self, **options) -> ScriptedWindows:
        return ScriptedWindows(vocabulary=SPOKEN_MULTILINGUAL, **options)

    def speak(self, scripted: ScriptedWindows, code: str, begin_s: float, end_s: float) -> Window:
        """Append a piece in a language, and decode it."""
        scripted.append(end_s + 0.5, mark(BEGIN, begin_s), mark(END, end_s))
        piece = scripted.windows.language_span(scripted.ready)
        if piece is not None:
            assert piece == (begin_s * 100, (end_s - begin_s) * 100)
            scripted.windows.detected({code: 0.9, "en" if code == "de" else "de": 0.1})
        return scripted.step("A.")

    def test_each_utterance_has_its_own_and_no_text_in_another_before_it(self):
        scripted = self.scripted()
        self.speak(scripted, "en", 0, 2)
        window = self.speak(scripted, "en", 3, 5)
        assert span(window) == (0, 5)
        window = self.speak(scripted, "de", 6, 8)
        assert (span(window), window.prefix) == ((6, 8), ())
        window = self.speak(scripted, "de", 9, 11)
        assert span(window) == (6, 11)
        assert [segment.language for segment in scripted.segments] == ["en", "en", "de", "de"]

    def test_all_pieces_of_an_utterance_have_the_language_of_the_first(self):
        scripted = self.scripted()
        scripted.append(14, mark(BEGIN, 0), mark(CUT, 12))
        scripted.windows.detected({"de": 0.9, "en": 0.1})
        scripted.step("A.")
        scripted.append(20, mark(END, 18))
        assert scripted.windows.language_span(scripted.ready) is None
        assert SPOKEN_MULTILINGUAL.prompt_language(scripted.step("B.").prompt) == "de"

    def test_a_guess_about_a_growing_piece_decides_nothing(self):
        scripted = self.scripted(live=CONFIRMED)
        self.speak(scripted, "en", 0, 2)
        scripted.append(4, mark(BEGIN, 3))
        scripted.windows.detected({"de": 0.9, "en": 0.1})
        assert span(scripted.open()) == (3, 4)
        assert scripted.windows.needed_from == 0  # the final window may begin there
        scripted.close(token_ids("B."))
        scripted.append(4.5)
        scripted.windows.detected({"de": 0.9, "en": 0.1})
        scripted.append(5, mark(END, 5))
        assert scripted.windows.language_span(scripted.ready) == (300, 200)
        scripted.windows.detected({"de": 0.1, "en": 0.9})
        assert span(scripted.step("C.")) == (0, 5)


class TestConfirmEvery:
    def test_a_growing_piece_is_decoded_at_intervals(self):
        scripted = ScriptedWindows(CONFIRMED)
        scripted.speak(0, 2, "A.")
        scripted.append(3.4, mark(BEGIN, 3))
        assert scripted.ready is None
        scripted.append(3.5)
        assert scripted.windows.may_wait
        assert span(scripted.step("B.")) == (0, 3.5)
        scripted.append(5.2)
        assert span(scripted.step("BC.")) == (0, 5.2)
        scripted.append(5.6, mark(END, 5.6))
        assert not scripted.windows.may_wait
        assert letters(scripted.step("BCD.").prefix) == "A"
        assert letters(scripted.windows.position.pieces[-1].tokens) == "BCD"

    def test_its_text_is_a_hint_for_the_next_unless_it_is_silence(self):
        scripted = ScriptedWindows(CONFIRMED, no_speech_threshold=0.5)
        scripted.append(1, mark(BEGIN, 0))
        scripted.open()
        assert scripted.close(token_ids(0.0, "AB", 1.0, ".")).opening == token_ids(0.0, "AB")
        scripted.append(2)
        scripted.open()
        assert scripted.close(token_ids("AB."), no_speech_prob=0.9).opening == ()


class TestPosition:
    def test_it_is_the_end_of_the_last_final_piece_and_moves_on_in_silence(self):
        scripted = ScriptedWindows()
        assert scripted.windows.position == LivePosition()
        scripted.append(14, mark(BEGIN, 0), mark(CUT, 12))
        assert scripted.windows.position == LivePosition()
        scripted.step(0.0, "A", 9.0, ".")
        first = FinalPiece(0, token_ids(0.0, "A", 9.0))
        twelve = LivePosition(12 * SAMPLE_RATE, 1, True, (first,), "en")
        assert scripted.windows.position == twelve
        scripted.append(15, mark(END, 15))
        scripted.step("B.")
        last = FinalPiece(12 * SAMPLE_RATE, token_ids(0.0, "B", 3.0))
        assert scripted.windows.position == LivePosition(15 * SAMPLE_RATE, 1, False, (first, last), "en")
        scripted.append(40)
        assert scripted.windows.position == LivePosition(35 * SAMPLE_RATE, 1, False, (last,), "en")
        scripted.append(60, mark(BEGIN, 58))
        assert scripted.windows.position == LivePosition(58 * SAMPLE_RATE, 1, False, (), "en")
        assert scripted.windows.final_to == 15 * SAMPLE_RATE

    @pytest.mark.parametrize(
        ("position", "message"),
        [
            (LivePosition(640, pieces=(FinalPiece(320, (len(SPOKEN),)),)), "final tokens"),
            (LivePosition(640, pieces=(FinalPiece(320, (END_OF_TEXT,)),)), "final tokens"),
            (LivePosition(640, pieces=(FinalPiece(320, (1,) * 449),)), "has 449 final tokens"),
            (LivePosition(640, language="xx"), "language 'xx'"),
        ],
    )
    def test_one_that_the_model_cannot_continue_is_refused(self, position, message):
        with pytest.raises(InvalidRequest, match=message):
            ScriptedWindows(position=position)

    def test_late_times_from_outside_stay_within_the_vocabulary(self):
        pieces = (FinalPiece(0, token_ids(30.0)), FinalPiece(20 * SAMPLE_RATE, token_ids(30.0)))
        position = LivePosition(21 * SAMPLE_RATE, 1, False, pieces, "en")
        assert max(ScriptedWindows(position=position).speak(22, 24, ".").prefix) == len(SPOKEN) - 1


texts = st.lists(st.one_of(st.integers(0, NUM_TEXT - 1), st.integers(TIME, TIME + 1_500)), max_size=150).map(
    lambda tokens: [*tokens, END_OF_TEXT]
)
ends = st.sampled_from([CUT, END, END])
utterances = st.lists(st.tuples(ends, st.integers(0, 400), st.integers(17, 1_400)), min_size=1, max_size=8)


@settings(max_examples=examples(40, 400))
@given(
    utterances=utterances,
    data=st.data(),
    broken=st.sets(st.integers(0, 8)),
    temperatures=st.sampled_from([(0.0,), (0.0, 0.4), (0.0, 0.6)]),
)
def test_a_session_that_continues_opens_the_same_windows(utterances, data, broken, temperatures):
    """Also where windows of growing pieces come between; no window is longer than 29 s."""
    options = {"temperatures": temperatures, "logprob_threshold": -1.0}
    whole, part = ScriptedWindows(**options), ScriptedWindows(CONFIRMED, **options)
    at, is_speech = 0, False
    for number, (event, pause, length) in enumerate(utterances):
        begin = at if is_speech else at + pause * 320
        at = begin + length * 320
        marks = [VoiceMark(event, at)] if is_speech else [VoiceMark(BEGIN, begin), VoiceMark(event, at)]
        is_speech = event is CUT
        if not is_speech or data.draw(st.booleans()):
            part.append((begin + length * 160) / SAMPLE_RATE, *marks[:-1])
            while part.ready:
                part.open()
                part.close(data.draw(texts))
        for scripted in (whole, part):
            scripted.append((at + SAMPLE_RATE) / SAMPLE_RATE, *marks)
        while whole.ready:
            text, log_prob = data.draw(texts), data.draw(st.sampled_from([-0.1, -2.0]))
            window, same = whole.open(), part.open()
            assert replace(same, id=window.id) == window
            assert len(window.prompt) + window.max_new_tokens <= 448
            assert len(window.prefix) < window.max_new_tokens and window.num_frames <= 2_900
            assert all(token < len(SPOKEN) for token in window.prefix)
            for scripted in (whole, part):
                scripted.close(text, log_prob=log_prob)
        assert part.windows.position == whole.windows.position
        if number in broken:
            segments, received = part.segments, part.received_samples
            part = ScriptedWindows(CONFIRMED, position=part.windows.position, **options)
            part.segments = segments
            part.append(received / SAMPLE_RATE)
    assert part.segments == whole.segments

"""Live transcripts: final segments, and the text that may change."""

import pytest

from experiments.common.models.speech import SPOKEN
from specwhisper.live import LiveOptions, LivePosition
from specwhisper.transcription.live_transcript import NUM_STABLE, LiveTranscript
from specwhisper.types import (
    SAMPLE_RATE,
    Candidates,
    Commit,
    CompletePiece,
    Hypothesis,
    Segment,
    TimedHint,
    Window,
    WindowOpened,
    WordAlignment,
)
from tests.live import BEGIN, CUT, END, ScriptedWindows, mark, token_ids


def text_of(text: str) -> str:
    """Return the text of letters as the vocabulary writes it."""
    return SPOKEN.decode(token_ids(text))


def shown(scripted: ScriptedWindows) -> tuple[str, str, str]:
    transcript = scripted.transcript
    return transcript.verified_text, transcript.stable_text, transcript.tentative_text


def hypothesis(start_s: float, text: str) -> Hypothesis:
    start = round(start_s * SAMPLE_RATE)
    return Hypothesis(1, start, start + SAMPLE_RATE, text_of(text), is_complete=True)


class TestFinal:
    def test_a_piece_is_cut_where_the_model_marks_segments(self):
        scripted = ScriptedWindows()
        scripted.speak(10, 14, 0.0, "AB", 1.0, 1.5, "C", 3.0, ".")
        assert [
            (s.start_s, s.end_s, s.tokens, s.text, s.is_utterance_end, s.seek) for s in scripted.segments
        ] == [
            (10.0, 11.0, token_ids(0.0, "AB", 1.0), text_of("AB"), False, 1_000),
            (11.5, 13.0, token_ids(1.5, "C", 3.0), text_of("C"), True, 1_000),
        ]

    def test_text_of_the_prefix_is_not_final_again(self):
        scripted = ScriptedWindows()
        scripted.speak(10, 12, 0.0, "A", 1.0, ".")
        scripted.speak(13, 15, 3.5, "B", 4.5, ".")
        first, second = scripted.segments
        assert (second.start_s, second.end_s, second.text) == (13.5, 14.5, text_of("B"))
        assert (first.utterance, second.utterance, second.seek) == (1, 2, 1_000)

    @pytest.mark.parametrize(
        ("parts", "expected"),
        [
            ((0.2, "A", 0.8, "."), (12.2, 12.8)),
            (("A.",), (12, 14)),
            ((0.2, "A."), (12.2, 14)),
            (("A", 0.8, "."), (12, 12.8)),
            ((9.0, "A", 29.0, "."), (14, 14)),  # no later than the piece
            ((1.0, "A", 0.5, "."), (13, 13)),
        ],
    )
    def test_times_lie_within_the_piece(self, parts, expected):
        scripted = ScriptedWindows()
        scripted.speak(12, 14, *parts)
        (segment,) = scripted.segments
        assert (segment.start_s, segment.end_s) == expected
        scripted.speak(20, 22, 3.0, "B", 7.0, ".")  # of the audio before
        assert (scripted.segments[1].start_s, scripted.segments[1].end_s) == (20, 20)

    def test_an_utterance_without_text_ends_with_an_empty_segment(self):
        scripted = ScriptedWindows(no_speech_threshold=0.5)
        scripted.append(14, mark(BEGIN, 1), mark(CUT, 13))
        scripted.step("AB.", no_speech_prob=0.9)
        assert scripted.segments == []
        scripted.append(16, mark(END, 15))
        scripted.step(0.0, 1.0, ".")
        assert scripted.segments == [
            Segment(15, 15, (), seek=1_300, utterance=1, is_utterance_end=True, language="en")
        ]
        assert scripted.speak(17, 19, ".").prefix == ()

    def test_scores_are_those_of_the_new_tokens(self):
        scripted = ScriptedWindows(logprob_threshold=-9.0)
        scripted.speak(0, 2, "A.", log_prob=-3.0)
        scripted.speak(3, 5, "B.", log_prob=0.0, no_speech_prob=0.25)
        segment = scripted.segments[1]
        assert (segment.confidence, segment.avg_logprob, segment.no_speech_prob) == (1.0, 0.0, 0.25)

    def test_words_have_their_own_times_in_the_piece(self):
        transcript = LiveTranscript(SPOKEN)
        window = Window(0, 0, 300, (SPOKEN.start_of_transcript,), 40, prefix=token_ids("AA"))
        transcript.observe(WindowOpened(window))
        words = (WordAlignment(2, 2, 8_000, 17_600), WordAlignment(4, 1, 17_600, 32_000))
        tokens, step = token_ids("AsB."), CompletePiece(1, SAMPLE_RATE, True)
        (segment,) = transcript.observe(
            Commit(0, 2, tokens, (0.0,) * 4, is_final=True, piece=step, words=words)
        )
        assert [(word.text, word.start_s, word.end_s) for word in segment.words] == [
            (text_of("As"), 1.0, 1.1),
            (text_of("B"), 1.1, 2.0),
        ]


class TestVerified:
    def test_it_is_the_last_text_of_a_growing_piece_after_the_prefix(self):
        scripted = ScriptedWindows(LiveOptions(confirm_every_ms=500))
        scripted.speak(0, 2, "A.")
        scripted.append(4, mark(BEGIN, 3))
        scripted.step("BC", 4.0, ".")
        assert scripted.transcript.verified_text == text_of("BC")
        scripted.append(5)
        scripted.open()
        scripted.commit(token_ids("D"))
        assert scripted.transcript.verified_text == text_of("BC")  # not word by word
        scripted.close(token_ids("DEF."))
        assert scripted.transcript.verified_text == text_of("DEF")
        scripted.transcript.lose_target()
        assert scripted.transcript.verified_text == ""

    def test_text_of_a_complete_piece_is_shown_once_it_is_final(self):
        scripted = ScriptedWindows()
        scripted.append(2, mark(BEGIN, 0), mark(END, 2))
        window = scripted.open()
        scripted.transcript.observe(Candidates(window.id, 0, 0, token_ids("AB"), block_number=1))
        scripted.commit(token_ids("AB"))
        assert shown(scripted) == ("", "", "")
        assert scripted.transcript.statistics.num_drafted == 2

    def test_text_of_a_growing_piece_that_is_silence_is_not_shown(self):
        scripted = ScriptedWindows(LiveOptions(confirm_every_ms=500), no_speech_threshold=0.5)
        scripted.append(1, mark(BEGIN, 0))
        scripted.step(0.0, "ABC.", no_speech_prob=0.9)
        assert scripted.transcript.verified_text == ""

    def test_a_repeated_phrase_is_shown_once_but_is_final_as_it_is(self):
        scripted = ScriptedWindows(LiveOptions(confirm_every_ms=500))
        scripted.append(1, mark(BEGIN, 0))
        scripted.step("AB" + "CD" * 9)
        assert scripted.transcript.verified_text == text_of("ABCD")
        scripted.append(2, mark(END, 2))
        scripted.step("AB" + "CD" * 9 + ".")
        assert scripted.segments[0].text == text_of("AB" + "CD" * 9)


class TestOpen:
    def test_stable_and_tentative_text_follow_verified_text(self):
        scripted = ScriptedWindows(LiveOptions(confirm_every_ms=500))
        scripted.append(2, mark(BEGIN, 0))
        for text in (*["AB"] * (NUM_STABLE - 1), "ABC"):
            scripted.transcript.show(hypothesis(0, text))
        assert shown(scripted) == ("", text_of("AB"), text_of("C"))
        scripted.step("A.")
        assert shown(scripted) == (text_of("A"), text_of("B"), text_of("C"))
        scripted.append(3, mark(END, 3))
        scripted.step("ABC.")
        assert shown(scripted) == ("", "", "")

    def test_the_text_of_later_pieces_stays_when_one_is_final(self):
        scripted = ScriptedWindows()
        scripted.append(5, mark(BEGIN, 0), mark(END, 2), mark(BEGIN, 4))
        scripted.transcript.show(hypothesis(0, "A"))
        scripted.transcript.show(hypothesis(4, "B"))
        assert shown(scripted) == ("", "", text_of("AB"))
        scripted.step("A.")
        scripted.transcript.show(hypothesis(0, "A"))  # late
        assert shown(scripted) == ("", "", text_of("B"))

    def test_a_recognisers_text_is_shown_without_what_is_final(self):
        scripted = ScriptedWindows()
        scripted.append(9, mark(BEGIN, 0), mark(END, 2), mark(BEGIN, 4))
        scripted.transcript.show_recognised(TimedHint(0, text_of("AB")))
        assert shown(scripted) == ("", "", text_of("AB"))
        scripted.step("AB.")
        scripted.transcript.show_recognised(TimedHint(0, text_of("ABC")))
        assert shown(scripted) == ("", "", text_of("C"))

    def test_the_span_of_open_text_follows_final_text(self):
        position = LivePosition(SAMPLE_RATE, 1)
        scripted = ScriptedWindows(position=position)
        assert scripted.transcript.span_s == (1, 1)
        scripted.append(4, mark(BEGIN, 2), mark(END, 3))
        assert scripted.transcript.span_s == (1, 4)
        scripted.step("A.")
        assert scripted.transcript.span_s == (3, 4)

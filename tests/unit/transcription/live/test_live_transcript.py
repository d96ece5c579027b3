"""Live transcripts: final text, text that may change, position to resume from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.common.models.scripted import END, TIME
from experiments.common.models.speech import SPOKEN, SPOKEN_MULTILINGUAL
from specwhisper.errors import InvalidCandidates
from specwhisper.live import LiveOptions, LivePosition
from specwhisper.transcription import live_transcript
from specwhisper.transcription.live.transcript import LiveTranscript, ends_sentence
from specwhisper.types import (
    SAMPLE_RATE,
    Candidates,
    Commit,
    DecodedStep,
    Outcome,
    Segment,
    Step,
    Window,
    WindowOpened,
    WordAlignment,
)
from tests.live import BEGIN, ENDED, mark, token_ids
from tests.live_transcripts import ScriptedTranscript
from tests.nightly import examples


def text_of(text: str) -> str:
    """Return the text of letters as the vocabulary writes it."""
    return SPOKEN.decode(token_ids(text))


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("The bees.", True),
        ("Which bees? ", True),
        ("“The bees.”", True),
        ("(The bees!)", True),
        ("蜜蜂。", True),
        ("The bees", False),
        ("The bees,", False),
        ("The bees...", False),
        ("The bees…", False),
        ("", False),
        ('"', False),
    ],
)
def test_ends_of_sentences(text, ends):
    assert ends_sentence(text) is ends


def test_a_sentence_ends_with_a_step_until_another_one(monkeypatch):
    monkeypatch.setattr(live_transcript, "SENTENCE_ENDS", ("c", "e"))
    scripted = ScriptedTranscript()
    transcript = scripted.transcript
    scripted.append(0.5, mark(BEGIN, 0))
    scripted.step(0.0, "AB", 0.4, ".")
    assert transcript.sentence_end_sample is None
    scripted.append(1.0)
    scripted.step(0.0, "ABC", 0.8, ".")
    assert transcript.sentence_end_sample == SAMPLE_RATE
    scripted.append(1.5)
    scripted.step(0.0, "ABCD", 1.2, ".")
    assert transcript.sentence_end_sample is None
    scripted.append(2.0, mark(ENDED, 2.0))
    scripted.step(0.0, "ABCDE", 1.6, ".")
    assert transcript.sentence_end_sample is None  # the next utterance has no text yet


class TestFinal:
    def test_segments_are_the_text_that_each_step_makes_final(self):
        scripted = ScriptedTranscript()
        scripted.append(0.5, mark(BEGIN, 0))
        assert scripted.step(0.0, "AB", 0.4, ".") == []
        scripted.append(1.0)
        (segment,) = scripted.step(0.0, "ABC", 0.8, ".")
        assert (segment.tokens, segment.text, segment.utterance) == (token_ids("AB"), text_of("AB"), 1)
        assert not segment.is_utterance_end
        scripted.append(1.5, mark(ENDED, 1.5))
        (segment,) = scripted.step(0.0, "AB", 0.4, 0.4, "CD", 1.4, ".")
        assert (segment.tokens, segment.is_utterance_end) == (token_ids("CD"), True)

    def test_an_utterance_without_text_ends_with_an_empty_segment(self):
        scripted = ScriptedTranscript(no_speech_threshold=0.5)
        scripted.append(1.0, mark(BEGIN, 0), mark(ENDED, 1.0))
        (segment,) = scripted.step("AB.", no_speech_prob=0.9)
        assert (segment.text, segment.tokens, segment.is_utterance_end) == ("", (), True)
        assert scripted.transcript.position == LivePosition(SAMPLE_RATE, 1)

    def test_segments_have_confidence_and_scores_of_their_window(self):
        transcript = LiveTranscript(SPOKEN)
        window = Window(0, 100, 50, (SPOKEN.start_of_transcript,), 40, temperature=0.3)
        transcript.observe(WindowOpened(window))
        transcript.observe(Commit(0, 0, token_ids("A"), (0.0,), no_speech_prob=0.25))
        commit = Commit(0, 1, token_ids("B."), (-1.0, -2.0), is_final=True, step=Step(1, 0, 1, False))
        (segment,) = transcript.observe(replace(commit, no_speech_prob=0.75))
        assert (segment.confidence, segment.avg_logprob, segment.no_speech_prob) == (1.0, -1.0, 0.25)
        assert (segment.temperature, segment.seek) == (0.3, 100)

    def test_words_carry_their_own_times(self):
        transcript = LiveTranscript(SPOKEN)
        transcript.observe(WindowOpened(Window(0, 0, 100, (SPOKEN.start_of_transcript,), 40)))
        words = (WordAlignment(0, 2, 1_600, 4_800), WordAlignment(2, 1, 4_800, 8_000))
        commit = Commit(
            0, 0, token_ids("AsB."), (0.0,) * 4, is_final=True, step=Step(1, 0, 3, True), words=words
        )
        (segment,) = transcript.observe(commit)
        assert [(word.text, word.start_s, word.end_s) for word in segment.words] == [
            (text_of("As"), 0.1, 0.3),
            (text_of("B"), 0.3, 0.5),
        ]
        assert (segment.start_s, segment.end_s) == (0.1, 0.5)

    def test_the_language_is_that_of_the_window(self):
        scripted = ScriptedTranscript(vocabulary=SPOKEN_MULTILINGUAL, language="de")
        assert scripted.transcript.language == "en"
        scripted.append(0.5, mark(BEGIN, 0))
        scripted.open()
        assert scripted.transcript.language == "de"
        scripted.write(token_ids("A."))

    def test_steps_have_their_span_and_number_of_forward_passes(self):
        scripted = ScriptedTranscript(temperatures=(0.0, 0.5), compression_ratio_threshold=1.0)
        scripted.append(0.6, mark(BEGIN, 0.1))
        scripted.step("A.")
        scripted.append(5.1, mark(ENDED, 5.1))
        for _ in range(2):
            scripted.open()
            scripted.write(token_ids("ABABABABABAB."), (5,))
        begin, first, last = (round(at_s * SAMPLE_RATE) for at_s in (0.1, 0.6, 5.1))
        assert scripted.transcript.steps == [
            DecodedStep(begin, first, 1),
            DecodedStep(begin, last, 3),
            DecodedStep(begin, last, 3),
        ]


class TestTimes:
    @pytest.mark.parametrize(
        ("parts", "start", "end", "expected"),
        [
            ((0.4, "A", 0.8, "."), 1, 2, (0.4, 0.8)),
            ((0.4, "AB", 0.8, "."), 1, 2, (0.4, 0.6)),
            ((0.4, "AB", 0.8, "."), 2, 3, (0.6, 0.8)),
            ((0.0, "A", 0.4, 0.6, "B", 1.0, "."), 1, 5, (0.0, 1.0)),
            ((0.0, "A", 0.4, 0.6, "B", 1.0, "."), 4, 5, (0.6, 1.0)),
            (("AB",), 0, 1, (0.0, 0.5)),
            (("AB",), 1, 2, (0.5, 1.0)),
            ((0.0, "A", 9.0, "."), 1, 2, (0.0, 1.0)),  # no later than the window
            ((0.8, "A", 0.2, "."), 1, 2, (0.8, 0.8)),  # no earlier than what is before it
        ],
    )
    def test_they_are_the_timestamps_and_interpolated_between_them(self, parts, start, end, expected):
        transcript = LiveTranscript(SPOKEN)
        transcript.observe(WindowOpened(Window(0, 200, 100, (SPOKEN.start_of_transcript,), 40)))
        tokens = token_ids(*parts)
        commit = Commit(0, 0, tokens, (0.0,) * len(tokens), is_final=True, step=Step(1, start, end, True))
        (segment,) = transcript.observe(commit)
        assert (segment.start_s, segment.end_s) == tuple(round(2 + at_s, 2) for at_s in expected)

    def test_the_span_of_text_that_may_change_follows_final_text(self):
        scripted = ScriptedTranscript()
        scripted.append(1.0, mark(BEGIN, 0), mark(ENDED, 1.0))
        assert scripted.transcript.span_s == (0.0, 1.0)
        scripted.step(0.0, "A", 0.6, ".")
        scripted.append(3.0)
        assert scripted.transcript.span_s == (1.0, 3.0)


class TestVerifiedAndDraftText:
    def test_verified_text_follows_final_text(self):
        scripted = ScriptedTranscript()
        scripted.append(0.5, mark(BEGIN, 0))
        scripted.open()
        transcript = scripted.transcript
        assert transcript.verified_text == ""
        transcript.observe(Commit(0, 0, token_ids(0.0, "AB"), (0.0,) * 3))
        assert transcript.verified_text == text_of("A")  # B may continue
        scripted.write(token_ids(0.0, "AB", 0.4, "."))
        assert transcript.verified_text == text_of("AB")
        scripted.append(1.0)
        scripted.step(0.0, "ABC", 0.9, ".")
        assert transcript.verified_text == text_of("C")

    def test_text_of_the_last_step_stays_until_a_commit_contradicts_it(self):
        scripted = ScriptedTranscript()
        scripted.append(0.5, mark(BEGIN, 0))
        scripted.step(0.0, "ABC.")
        scripted.append(1.0)
        scripted.commit_part(0.0, "A")
        assert scripted.transcript.verified_text == text_of("ABC")
        scripted.write(token_ids(0.0, "AD."), (2,))
        assert scripted.transcript.verified_text == text_of(
            "D"
        )  # A is final, and nothing of the last step left

    def test_text_of_a_skipped_step_is_dropped(self):
        scripted = ScriptedTranscript(no_speech_threshold=0.5)
        scripted.append(0.5, mark(BEGIN, 0))
        scripted.step("ABC.", no_speech_prob=0.9)
        assert scripted.transcript.verified_text == ""
        scripted.append(1.0)
        scripted.open()
        assert scripted.transcript.verified_text == ""

    def test_tentative_text_follows_verified_text(self):
        scripted = ScriptedTranscript()
        transcript = scripted.transcript
        scripted.append(0.5, mark(BEGIN, 0))
        window = scripted.open()
        transcript.update_belief(window, token_ids(0.0, "ABCDE"))
        assert (transcript.verified_text, transcript.tentative_text) == ("", text_of("ABCD"))
        transcript.observe(Commit(0, 0, token_ids(0.0, "AB"), (0.0,) * 3))
        assert (transcript.verified_text, transcript.tentative_text) == (text_of("AB"), text_of("CD"))

    def test_tentative_text_is_dropped_when_a_commit_contradicts_it(self):
        scripted = ScriptedTranscript()
        scripted.append(0.5, mark(BEGIN, 0))
        window = scripted.open()
        scripted.transcript.update_belief(window, token_ids(0.0, "ABCD"))
        scripted.transcript.observe(Commit(0, 0, token_ids(0.0, "X"), (0.0,) * 2))
        assert scripted.transcript.tentative_text == ""

    def test_tentative_text_of_newer_audio_replaces_that_of_older_audio(self):
        scripted = ScriptedTranscript()
        transcript = scripted.transcript
        scripted.append(0.5, mark(BEGIN, 0))
        window = scripted.open()
        newer = replace(window, id=1, num_frames=100)
        transcript.update_belief(newer, token_ids(0.0, "ABC."))
        scripted.write(token_ids(0.0, "AB."))
        assert transcript.tentative_text == text_of("C")
        transcript.update_belief(window, token_ids(0.0, "ABD"))
        assert transcript.tentative_text == text_of("C")

    def test_tentative_text_is_dropped_when_its_utterance_ends(self):
        scripted = ScriptedTranscript()
        transcript = scripted.transcript
        scripted.append(0.5, mark(BEGIN, 0), mark(ENDED, 0.5))
        window = scripted.open()
        transcript.update_belief(replace(window, id=1, num_frames=100), token_ids(0.0, "ABC"))
        scripted.write(token_ids(0.0, "AB."))
        assert (transcript.verified_text, transcript.tentative_text) == ("", "")
        transcript.update_belief(replace(window, id=2, num_frames=150), token_ids(0.0, "ABC"))
        assert transcript.tentative_text == ""

    def test_tentative_text_from_before_a_cut_is_dropped(self):
        scripted = ScriptedTranscript(LiveOptions(trim_ms=1_000))
        transcript = scripted.transcript
        scripted.append(1.5, mark(BEGIN, 0))
        scripted.step(0.0, "AB", 1.0, 1.0, "CD.")
        scripted.append(2.0)
        window = scripted.open()
        scripted.append(2.5)
        predicted = replace(window, id=window.id + 1, num_frames=250)
        transcript.update_belief(predicted, token_ids(0.0, "AB", 1.0, 1.0, "CDEF."))
        scripted.write(token_ids(0.0, "AB", 1.0, 1.0, "CDE."))
        assert transcript.tentative_text == text_of("F")
        window = scripted.open()
        assert window.start_frame == 100
        assert transcript.tentative_text == ""
        transcript.update_belief(
            predicted, token_ids(0.0, "AB", 1.0, 1.0, "CDEFG")
        )  # the draft had not applied the commit yet
        assert transcript.tentative_text == ""
        transcript.update_belief(window, token_ids(0.0, "CDEF."))
        assert transcript.tentative_text == text_of("F")


class TestMessages:
    def test_commits_may_repeat_tokens(self):
        scripted = ScriptedTranscript()
        scripted.append(0.5, mark(BEGIN, 0))
        scripted.open()
        for end in (2, 1, 2):
            scripted.transcript.observe(Commit(0, 0, token_ids("ABC")[:end], (0.0,) * end))
        assert scripted.transcript.verified_text == text_of("A")

    def test_a_gap_is_refused(self):
        scripted = ScriptedTranscript()
        scripted.append(0.5, mark(BEGIN, 0))
        scripted.open()
        with pytest.raises(InvalidCandidates, match="at position 3 leaves a gap after 0"):
            scripted.transcript.observe(Commit(0, 3, token_ids("A"), (0.0,)))

    def test_commits_of_other_windows_are_ignored(self):
        scripted = ScriptedTranscript()
        scripted.append(0.5, mark(BEGIN, 0))
        scripted.open()
        late = Commit(7, 0, token_ids("A."), (0.0, 0.0), is_final=True, step=Step(1, 0, 1, True))
        assert scripted.transcript.observe(late) == []
        assert scripted.transcript.verified_text == ""
        scripted.write(token_ids("A."))
        late = replace(late, window_id=0)
        assert scripted.transcript.observe(late) == []

    @settings(max_examples=examples(50, 200))
    @given(data=st.data())
    def test_final_times_are_in_order_whatever_a_target_sends(self, data):
        transcript = LiveTranscript(SPOKEN)
        tokens = st.lists(st.sampled_from([0, 1, 20, END, TIME, TIME + 50, TIME + 1_500]), max_size=6)
        places, ids = st.integers(0, 7), st.integers(0, 2)
        windows = st.builds(
            lambda id, start, frames: Window(id, start, frames, (END + 1,), 40),
            ids,
            st.integers(0, 500),
            st.integers(1, 3_000),
        )
        end_s, num_utterances = 0.0, 0
        for _ in range(data.draw(st.integers(1, 15))):
            kind = data.draw(st.sampled_from(["open", "commit", "commit", "candidates", "believe"]))
            fresh: list[Segment] = []
            if kind == "open":
                opened = WindowOpened(data.draw(windows), None, tuple(data.draw(tokens)), data.draw(places))
                transcript.observe(opened)
            elif kind == "candidates":
                transcript.observe(Candidates(0, 0, 0, tuple(data.draw(tokens))))
            elif kind == "believe":
                transcript.update_belief(data.draw(windows), tuple(data.draw(tokens)))
            else:
                written = tuple(data.draw(tokens))
                start, is_last = data.draw(places), data.draw(st.booleans())
                step = Step(num_utterances + 1, start, data.draw(places), is_last)
                commit = Commit(
                    data.draw(ids),
                    data.draw(places),
                    written,
                    (-0.1,) * len(written),
                    is_final=data.draw(st.booleans()),
                    outcome=data.draw(st.sampled_from([Outcome.KEPT, Outcome.SKIPPED])),
                    step=data.draw(st.sampled_from([None, step])),
                )
                try:
                    fresh = transcript.observe(commit)
                except InvalidCandidates:
                    return
            for segment in fresh:
                assert end_s <= segment.start_s <= segment.end_s
                assert segment.text or segment.is_utterance_end
                end_s, num_utterances = segment.end_s, num_utterances + segment.is_utterance_end
            assert transcript.span_s[0] <= transcript.span_s[1]
            assert transcript.position.num_utterances == num_utterances
            assert all(token < END for token in transcript.position.final_tokens)
            assert isinstance(transcript.verified_text + transcript.tentative_text, str)
